// The planning halves of hntmp: on GPUs, and on the CPU.
#pragma once
#include <vector>

#include "plan/method.h"

namespace convx::hntmp {

// Values of Plan::kernel on CPUs.
enum CpuKernel : int { kCpuRows = 0, kCpuPixels = 1 };

Support gpu_supports(const ConvProblem& problem, const DeviceTraits& device);
std::vector<Plan> gpu_candidates(const ConvProblem& problem, const DeviceTraits& device);

Support cpu_supports(const ConvProblem& problem, const DeviceTraits& device);
std::vector<Plan> cpu_candidates(const ConvProblem& problem, const DeviceTraits& device);

}  // namespace convx::hntmp
