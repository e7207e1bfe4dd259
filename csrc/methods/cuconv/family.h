// The planning halves: what there is on GPUs and on CPUs.
#pragma once
#include <string>
#include <vector>

#include "plan/method.h"
#include "problem/sweep.h"

namespace convx::cuconv {

// Every way to run a supported problem, best first within each candidate.
void append_gpu(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);
bool has_gpu_plan(const ConvProblem& problem, const DeviceTraits& device);  // whether that appends any
void append_cpu(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);
void append_tensor(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);
void append_deep(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans);

// Of all kernels but deep's.
constexpr const char* kNeedsPlanes = "it needs the layout nchw: its coalesced accesses run along rows";

// Channels of the split precision: a sum of few products has the error of one, up to six times float32's.
constexpr int64_t kFewestSplit = 8;

// Why no plan of a candidate was made: of deep the condition that fails, of others the layout, or that planes
// of partial sums pass the budget; "" where it is none of these.
std::string why_no_deep(const ConvProblem& problem, const DeviceTraits& device);
std::string why_absent_on_gpu(const ConvProblem& problem, const DeviceTraits& device,
                              const std::string& candidate);

// Whether planes of sums keep to the workspace limit, and what adding them up takes.
bool within_budget(const Sweep& s, int64_t planes, DType dtype);
double sum_us(const Sweep& s, int64_t planes, DType dtype, const DeviceTraits& device);

}  // namespace convx::cuconv
