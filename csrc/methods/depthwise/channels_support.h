// What the channels_last kernels of forward and input_grad ask for alike. Host only.
#pragma once
#include <algorithm>

#include "plan/method.h"

namespace convx::depthwise {

// A square filter whose offsets within a tile, of 32 rows at most, fit 32 bits.
inline Support supports_channels(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return Support::no("runs on GPUs; this device is a CPU");
  if (problem.operation == Operation::weight_grad) return Support::no("forward and input_grad only");
  if (problem.layout != Layout::nhwc) return Support::no("layout must be channels_last");
  if (problem.dtype == DType::float64) return Support::no("dtype must be float32, float16 or bfloat16");
  if (!problem.is_depthwise() || problem.out_channels != problem.in_channels) {
    return Support::no("groups, in_channels and out_channels must be equal");
  }
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return Support::no("dilation must be 1");
  if (std::max({problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right}) >=
      std::min(problem.filter_height, problem.filter_width)) {
    return Support::no("padding must be smaller than the filter");
  }
  // Unit and thread numbers are 32 bits too.
  constexpr int64_t kOffsets = int64_t{1} << 31;
  const int64_t height = std::max(problem.in_height, problem.out_height);
  const int64_t width = std::max(problem.in_width, problem.out_width);
  if (width + 32 >= kOffsets / 32 / problem.in_channels || height + 32 >= kOffsets / problem.batch ||
      height >= kOffsets / 64) {
    return Support::no("channels * width must be below 2^26, and batch * height below 2^31");
  }
  return Support::yes();
}

}  // namespace convx::depthwise
