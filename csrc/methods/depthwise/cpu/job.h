// What the launcher hands to the kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/depthwise/cpu/columns.h"
#include "methods/epilogue.h"
#include "plan/launch.h"
#include "problem/device.h"
#include "problem/problem.h"

namespace convx::depthwise {

// The plan's candidates: lanes along the layout's fastest axis, lanes along channels of transposed blocks of
// NCHW, lanes along columns of NCHW with rows that stay in registers, and the path for everything.
enum class Algorithm : uint8_t { general, rows, blocked, reuse };

// Forward and input gradient are both a Sweep of a filter over a source that gives a target. In a transposed
// one source pixel a meets target pixel u at tap u + pad - a * stride. In the weight gradient the source is
// the input and the target is the output gradient.
struct Job {
  Operation operation;
  DType dtype;
  bool channels_last;
  Algorithm algorithm;
  bool transposed;  // input gradient with a stride
  bool flipped;     // input gradient without one

  const void* source;
  const void* weight;
  EpilogueArguments<void> epilogue;
  const void* target_grad;  // weight gradient alone: the output gradient
  void* result;
  void* workspace;  // weight gradient: slices x weight elements of the accumulator's type, where slices > 1

  int64_t batch, channels, multiplier;  // channels of the input; the output has channels * multiplier
  int64_t source_height, source_width, target_height, target_width;
  int64_t filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  int64_t pad_top, pad_left;  // of the sweep; negative where a flipped one is cropped
  int64_t threads;
  int64_t slices;             // weight gradient: parts of the batch's rows, summed in order at the end
  const ColumnPlan* columns;  // for Algorithm::general
};

}  // namespace convx::depthwise

namespace convx::avx512 {
void run(const depthwise::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const depthwise::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const depthwise::Job& job, const ThreadPool& pool);
}
