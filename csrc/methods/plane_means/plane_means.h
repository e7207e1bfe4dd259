// Means of planes on GPUs, which networks end with: launched so that it overlaps the kernel before it, and
// the next one overlaps it. kernel.cuh.
#pragma once
#include "plan/launch.h"
#include "problem/means_problem.h"

namespace convx::plane_means {

// Of float32 and 16 bits, small planes as networks end with; in channels_last, channels in whole 16 bytes.
inline bool takes(const MeansProblem& p) {
  constexpr int64_t kMostPixels = 1024, kMostElements = int64_t{1} << 31;
  const bool is_whole = p.layout == Layout::nchw || p.channels * element_size(p.dtype) % 16 == 0;
  return p.dtype != DType::float64 && p.pixels > 0 && p.pixels <= kMostPixels && is_whole &&
         p.elements() > 0 && p.elements() < kMostElements;
}

// pointers: input and result, aligned to 16 bytes.
void launch_gpu(const MeansProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::plane_means
