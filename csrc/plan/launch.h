// What a launch needs beside the plan. Pointers are to dense memory in the problem's layout.
#pragma once
#include <cstdint>

#include "plan/method.h"
#include "platform/gpu/stream.h"
#include "problem/problem.h"

namespace convx {

// The operands of the problem's epilogue, those that it has; null without. A residual's address is that of
// the result modulo 16 bytes, so that it can be read as the result is written.
struct EpiloguePointers {
  const void* bias = nullptr;
  const void* scale = nullptr;
  const void* residual = nullptr;
};

// forward reads input, weight and the epilogue's operands and writes result, and so do filterings; input_grad
// reads output_grad and weight; weight_grad reads input and output_grad. weight is always (out_channels,
// in_channels / groups, filter_height, filter_width), contiguous, and so is the weight gradient; beside kept
// filters in plan.packing's order it is there for plans that read both alone.
struct Pointers {
  const void* input = nullptr;
  const void* weight = nullptr;
  EpiloguePointers epilogue;
  const void* output_grad = nullptr;
  void* result = nullptr;
  // The filters in plan.packing's order, where it names one; 256-byte aligned.
  const void* packed_weight = nullptr;
  bool packed_just_now = false;  // by the kernel before this one, which must be complete then
  void* workspace = nullptr;     // plan.workspace_bytes, 256-byte aligned
};

// The caller's thread pool: body(context, begin, end) over [0, count) in pieces of at least grain.
struct ThreadPool {
  int threads = 1;
  void (*run)(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) = nullptr;

  template <class Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) const {
    run(
        count, grain,
        [](void* context, int64_t begin, int64_t end) { (*static_cast<const Body*>(context))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // body(worker, begin, end): so many workers have as many tasks each; worker tells whose memory is whose.
  template <class Body>
  void share(int64_t workers, int64_t tasks, const Body& body) const {
    const auto run_some = [&](int64_t first, int64_t last) {
      for (int64_t worker = first; worker < last; ++worker) {
        body(worker, tasks * worker / workers, tasks * (worker + 1) / workers);
      }
    };
    workers > 1 ? parallel_for(workers, 1, run_some) : run_some(0, 1);
  }
};

}  // namespace convx
