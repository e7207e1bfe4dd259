// Squeeze-and-excitation in one kernel: methods/gates/kernel.cuh and cpu/kernels.h.
#pragma once
#include "methods/gates/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"
#include "problem/excite_problem.h"

namespace convx::squeeze_excite {

extern const MethodOf<ExciteProblem> method;
// Torch's operators and two convolutions: what it is without that.
extern const MethodOf<ExciteProblem> native;

inline gates::Tiling tiling_of(const Plan& plan) {
  return {plan["lanes"], plan["ranks"], plan["pixels"] != 0, plan["image"] != 0, plan["matrices"] != 0};
}

Plan cpu_plan(const ExciteProblem& problem, const DeviceTraits& device);

// pointers: input, weight (ExciteWeights), result.
void launch_gpu(const Plan& plan, const ExciteProblem& problem, const Pointers& pointers, Stream stream);
void launch_cpu(const Plan& plan, const ExciteProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);

}  // namespace convx::squeeze_excite
