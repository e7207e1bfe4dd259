// Depthwise convolution with row reuse and column reuse: "Optimizing depthwise separable convolution on
// DCU" (Liu et al. 2024), Algorithm 1 corrected, and "Optimizing GPU memory transactions for convolution
// operations" (Lu, Zhang, Wang 2020).
#pragma once
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::depthwise {

extern const Method method;

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::depthwise
