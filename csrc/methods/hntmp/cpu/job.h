// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/epilogue.h"
#include "methods/hntmp/cpu/pixels_geometry.h"
#include "methods/hntmp/geometry.h"
#include "plan/launch.h"

namespace convx::hntmp {

// What a thread has for itself while it works on tasks, in accumulators: sums of a block of result channels,
// filters of 16 bits widened, where each product's values begin (integers), the staged window.
template <class Number>
struct ThreadMemory {
  // With a stride, the window's phases that no tap meets are left out.
  Number phases, pitch, row_step, window_rows, channel_step;
  Number sums, widened, offsets;
  Number bytes;  // of all, a multiple of a cache line
};

struct Job {
  DType dtype;
  bool channels_last;
  const void* source;
  const void* weight;  // in blocks of the order "crsk block_channels"
  EpilogueArguments<void> epilogue;
  void* result;
  Sweep sweep;
  // A task is `rows` result rows and `blocks` blocks of result channels of one group of one image; its sums
  // grow by source_channels source channels at a time.
  int64_t rows, blocks, source_channels;
  int64_t chain;  // products that are summed apart, at most
  ThreadMemory<int64_t> memory;
  void* workspace;  // of each thread: memory.bytes
  int64_t threads;  // at most
};

// Of float32 in channels_last: pixels.h.
struct PixelsJob {
  const float* source;
  const float* filters;
  EpilogueArguments<void> epilogue;
  float* result;
  Sweep sweep;
  int64_t bands, parts, strip_rows, workers;
  PixelsGeometry geometry;
  float* workspace;  // of each worker
};

constexpr int64_t kBlockVectors = 2;  // vectors of result channels that a thread works on

// Pixels at a time: with two vectors of channels and the weights, they fill the registers.
constexpr int64_t most_pixels(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? 14 : 6;
}

// As the CPU kernels see it: rows of pixels in pieces of registers' worth.
inline Sweep cpu_sweep_of(const ConvProblem& problem, CpuIsa isa) {
  return with_rows_of(sweep_of(problem), most_pixels(isa));
}

}  // namespace convx::hntmp

namespace convx::avx512 {
void run(const hntmp::Job& job, const ThreadPool& pool);
void run(const hntmp::PixelsJob& job, const ThreadPool& pool);
}  // namespace convx::avx512
namespace convx::avx2 {
void run(const hntmp::Job& job, const ThreadPool& pool);
void run(const hntmp::PixelsJob& job, const ThreadPool& pool);
}  // namespace convx::avx2
namespace convx::baseline {
void run(const hntmp::Job& job, const ThreadPool& pool);
void run(const hntmp::PixelsJob& job, const ThreadPool& pool);
}  // namespace convx::baseline
