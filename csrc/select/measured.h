// Times measured beforehand, which replace a method's own estimate where there are any.
#pragma once
#include <string>

#include "problem/device.h"
#include "problem/problem.h"

namespace convx {

struct Measured {
  double us = 0;       // 0 where nothing like this was measured
  std::string source;  // "measured on NVIDIA H200", "scaled from NVIDIA H200"
  explicit operator bool() const { return us > 0; }
};

// What algorithm ("depthwise/strip", "native") takes without bias and activation: depthwise problems with
// square filters and equal strides alone, and maps not far from square, of the sizes that networks have.
// Times between measured sizes are interpolated. float16 has bfloat16's times. A device that was not measured
// has those of one of its kind in the ratio of bandwidths; a CPU those of one with its instruction set.
Measured measured_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device);

}  // namespace convx
