// Inverted residual blocks whose depthwise filters are products on matrix units: banded/kernel.cuh.
#pragma once
#include <vector>

#include "methods/inverted_residual/banded/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::inverted_residual::banded {

constexpr const char* kCandidate = "banded";

// Of a problem that the method supports; empty for those that it has no tile for.
std::vector<Plan> candidates(const BlockProblem& problem, const DeviceTraits& device);

inline Tiling tiling_of(const Plan& plan) {
  return {plan["shape"], plan["tile_height"], plan["ahead"], plan["ranks"]};
}

template <class T>
void launch_typed(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream);
template <class T>
void pack_typed(const Plan& plan, const BlockProblem& problem, const BlockWeights& weights, void* packed,
                Stream stream);

}  // namespace convx::inverted_residual::banded
