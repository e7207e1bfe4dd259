// Pointwise (1x1) convolution as a product of matrices, filters times pixels, read where it lies: the second
// half of "Optimizing depthwise separable convolution on DCU" (Liu et al. 2024), with its channels staged
// through shared memory and its tiles chosen for any shape.
#pragma once
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::pointwise {

extern const Method method;

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool);
void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream);

}  // namespace convx::pointwise
