// What nchw kernels of forward and input_grad for square filters ask for alike. Host only.
#pragma once
#include "plan/method.h"

namespace convx::depthwise {

inline Support supports_planes(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return Support::no("runs on GPUs");
  if (problem.operation == Operation::weight_grad) return Support::no("computes forward and input_grad");
  if (problem.layout != Layout::nchw) return Support::no("needs the layout nchw");
  if (problem.dtype == DType::float64) return Support::no("has no float64");
  if (!problem.is_depthwise()) return Support::no("needs groups = in_channels");
  const int64_t filter = problem.filter_height;
  if (filter != problem.filter_width || (filter != 3 && filter != 5 && filter != 7)) {
    return Support::no("needs a 3x3, 5x5 or 7x7 filter");
  }
  if (problem.stride_h != problem.stride_w || problem.stride_h > 2) {
    return Support::no("needs stride 1 or 2 both ways");
  }
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return Support::no("needs dilation 1");
  return Support::yes();
}

}  // namespace convx::depthwise
