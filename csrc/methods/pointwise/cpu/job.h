// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/epilogue.h"
#include "methods/pointwise/grid.h"
#include "plan/launch.h"
#include "problem/device.h"

namespace convx::pointwise {

// Forward and input_grad: result[channel][pixel] = sum of filters[channel][depth] * source[depth][pixel].
struct ProductJob {
  DType dtype;
  bool channels_last;
  bool pixel_lanes;  // vectors of pixels times single filters, or else vectors of filters times single pixels
  const void* source;
  const void* weight;  // in blocks of the order "crsk wave_c"
  EpilogueArguments<void> epilogue;
  void* result;
  int64_t batch, groups, depth, channels;  // depth, channels: source and result channels of a group
  Grid grid;
  bool covers;  // the grid has every pixel of the result
  // The tiling: of a register tile, of a task, and how many products are summed apart.
  int64_t wave_w, wave_c, repeat_w, repeat_c, stage_c;
};

// weight_grad: result[filter][channel] = sum of output_grad[filter][pixel] * input[channel][pixel].
struct WeightJob {
  DType dtype;
  bool channels_last;
  const void* input;
  const void* output_grad;
  void* result;
  void* workspace;  // sums of the slices, rows of whole vectors; null where the result can hold them
  int64_t batch, groups, filters, channels;  // of a group
  Grid grid;                                 // source: the input's pixels, result: the output's
  int64_t rows, columns, pixels, slices;     // of a task; slices of the pixels of all images
};

}  // namespace convx::pointwise

namespace convx::avx512 {
void run(const pointwise::ProductJob& job, const ThreadPool& pool);
void run(const pointwise::WeightJob& job, const ThreadPool& pool);
}  // namespace convx::avx512
namespace convx::avx2 {
void run(const pointwise::ProductJob& job, const ThreadPool& pool);
void run(const pointwise::WeightJob& job, const ThreadPool& pool);
}  // namespace convx::avx2
namespace convx::baseline {
void run(const pointwise::ProductJob& job, const ThreadPool& pool);
void run(const pointwise::WeightJob& job, const ThreadPool& pool);
}  // namespace convx::baseline
