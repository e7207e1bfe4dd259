// Pooling on CPUs, between the convolutions of a chain: cpu/kernels.h.
#pragma once
#include "plan/launch.h"
#include "problem/device.h"
#include "problem/pooling_problem.h"

namespace convx::pooling {

void launch_cpu(const PoolingProblem& problem, const Pointers& pointers, const ThreadPool& pool, CpuIsa isa);

}  // namespace convx::pooling
