// The kernel for first convolutions, beside hntmp's others.
#pragma once
#include <vector>

#include "methods/hntmp/stem/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::hntmp::stem {

constexpr const char* kCandidate = "stem";

// Empty for problems that are none of its own.
std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device);

inline Tiling tiling_of(const Plan& plan, const ConvProblem& problem) {
  return {plan["lanes"],      plan["lanes_across"], plan["pixels"],        problem.layout == Layout::nhwc,
          plan["warps_down"], plan["filter_warps"], plan["block_channels"]};
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::hntmp::stem
