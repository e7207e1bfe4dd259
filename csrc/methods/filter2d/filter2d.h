// Filtering of single-channel images with column reuse and row reuse: "Optimizing GPU memory transactions for
// convolution operations" (Lu, Zhang, Wang 2020), its single-channel half.
//
// It solves two kinds of problem: convolutions with one input channel, and filterings, which have other
// borders and uint8 besides.
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/method.h"
#include "problem/filter_problem.h"

namespace convx::filter2d {

extern const Method method;
extern const MethodOf<FilterProblem> filtering;

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void launch_cpu(const Plan& plan, const FilterProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
void launch_gpu(const Plan& plan, const FilterProblem& problem, const Pointers& pointers, Stream stream);

// cpu/plan.cpp: what is the CPU's. append_cpu adds plans with candidate, kernel, tiling and predicted_us.
Support cpu_supports(const FilterProblem& problem, const DeviceTraits& device);
void append_cpu(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);

}  // namespace convx::filter2d
