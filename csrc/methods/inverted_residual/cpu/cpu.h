// Inverted residual blocks on CPUs: kernels.h.
#pragma once
#include "methods/inverted_residual/cpu/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::inverted_residual::cpu {

Support supports(const BlockProblem& problem);
std::vector<Plan> candidates(const BlockProblem& problem, const DeviceTraits& device);
Tiling tiling_of(const Plan& plan);

}  // namespace convx::inverted_residual::cpu
