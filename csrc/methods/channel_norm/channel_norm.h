// Layer norm of channels on CPUs, between the convolutions of a chain: cpu/kernels.h.
#pragma once
#include "plan/launch.h"
#include "problem/device.h"
#include "problem/norm_problem.h"

namespace convx::channel_norm {

// pointers: input, result.
void launch_cpu(const NormProblem& problem, const Pointers& pointers, const ThreadPool& pool, CpuIsa isa);

}  // namespace convx::channel_norm
