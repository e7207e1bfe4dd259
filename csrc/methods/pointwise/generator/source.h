// Second stage of the pointwise pipeline (Liu et al. 2024, section 5.2, Algorithm 2): the source of a kernel
// for one problem and one tiling.
//
// The text stands by itself: NVRTC and hipRTC compile it as it is, and the host executor (tests/host/simt)
// with -DCONVX_SIMT. Batch and grid, that is Block_N, are left to the launch; everything else is a constant
// in it.
#pragma once
#include <cstdint>
#include <string>

#include "methods/pointwise/generator/tiling.h"

namespace convx::pointwise::generator {

struct Source {
  std::string name;  // of the kernel, made of what it does
  std::string text;
};

// Whether a problem's tilings have sources: those of CPUs are compiled beforehand.
Support has_source(const ConvProblem& problem, const DeviceTraits& device);

// For a problem that has_source() and a tiling that is_allowed() on a device with waves of that many lanes.
Source source(const ConvProblem& problem, const Tiling& tiling, int lanes);

// The kernel's parameters are input, weight, bias, scale, residual (none of these three is read where the
// problem has none), output, and the batch as a 64-bit integer.
struct LaunchShape {
  int64_t blocks;  // Block_N for each multiprocessor, or fewer where there is less to do
  int threads;
  int64_t shared_bytes;  // dynamic
};
LaunchShape launch_shape(const Tiling& tiling, const Space& space);

}  // namespace convx::pointwise::generator
