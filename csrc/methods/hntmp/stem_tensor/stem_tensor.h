// The kernel for first convolutions of 16 bits in channels_last on matrix units, beside hntmp's others.
#pragma once
#include <vector>

#include "methods/hntmp/stem_tensor/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::hntmp::stem_tensor {

constexpr const char* kCandidate = "stem_tensor";

// Empty for problems that are none of its own.
std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device);

inline Tiling tiling_of(const Plan& plan) {
  return {plan["lanes"], plan["tile_height"], plan["tile_width"], plan["warps"], plan["block_channels"]};
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::hntmp::stem_tensor
