// Dense convolution whose threads own output channels, "HNTMP does Not Map Threads to Pixels" (Ji 2019), with
// the channels of the input distributed over lanes and warps.
#pragma once
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::hntmp {

extern const Method method;

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream);
void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool);

}  // namespace convx::hntmp
