// Filtering of single-channel images with column reuse and row reuse: "Optimizing GPU memory transactions for
// convolution operations" (Lu, Zhang, Wang 2020), its single-channel half.
//
// Convolutions with one input channel reach it as any method's (method, launch_gpu, launch_cpu); filtering
// with other borders, and of uint8, by plan_filter and launch_filter_gpu or launch_filter_cpu.
#pragma once
#include <string>
#include <vector>

#include "methods/filter2d/problem.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::filter2d {

extern const Method method;

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

// Whether the method can run a problem on a device, with the exact condition that fails.
Support supports_filter(const FilterProblem& problem, const DeviceTraits& device);

// Every way to run a problem that is supported, the expected fastest first. No plan has a workspace.
std::vector<Plan> filter_candidates(const FilterProblem& problem, const DeviceTraits& device);

// algorithm: "auto", "filter2d" (both: the fastest expected), a candidate ("strip", "rotation",
// "column_reuse", "row_reuse", "both", "direct" on GPUs) or "filter2d/<candidate>". Throws InvalidArgument
// for one that does not exist or can't run the problem, saying what can.
Plan plan_filter(const FilterProblem& problem, const DeviceTraits& device, const std::string& algorithm);

// Dense memory in the order that FilterProblem gives.
struct FilterPointers {
  const void* images = nullptr;
  const void* filters = nullptr;
  void* result = nullptr;
  EpiloguePointers epilogue;  // bias and scale of the filters' type
};

void launch_filter_gpu(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                       Stream stream);
void launch_filter_cpu(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                       const ThreadPool& pool, CpuIsa isa);

// cpu/plan.cpp: what of the above is the CPU's. append_cpu adds plans with candidate, kernel, tiling and
// predicted_us; sorting and naming the method is filter_candidates'.
Support cpu_supports(const FilterProblem& problem, const DeviceTraits& device);
void append_cpu(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);

}  // namespace convx::filter2d
