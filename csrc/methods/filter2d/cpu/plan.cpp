// CPU candidates of filter2d: the two reuses of the paper, each alone, both and none.
#include <algorithm>

#include "methods/filter2d/cpu/job.h"
#include "methods/filter2d/filter2d.h"

namespace convx::filter2d {
namespace {

// Share of the arithmetic rate that a candidate reaches, measured on two cores with AVX-512 at 1024 x 1024;
// the tiles for any filter read their sizes at run time.
struct Candidate {
  const char* name;
  Reuse reuse;
  double own_kernel, general;  // 0: there is none
};
constexpr Candidate kCandidates[] = {
    {"row_reuse", Reuse::rows, 0.6, 0.4},
    {"both", Reuse::both, 0.55, 0},
    {"direct", Reuse::none, 0.4, 0.2},
    {"column_reuse", Reuse::columns, 0.35, 0},
};

}  // namespace

Support cpu_supports(const FilterProblem& problem, const DeviceTraits& device) {
  if (device.backend != Backend::cpu) return Support::no("the cpu kernels run on the CPU only");
  if (problem.stride_h != 1 || problem.stride_w != 1) {
    return Support::no("on the CPU the stride must be 1, got (" + std::to_string(problem.stride_h) + ", " +
                       std::to_string(problem.stride_w) + ")");
  }
  return Support::yes();
}

void append_cpu(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  // Images in float and double are read in place; the other types are converted once each way.
  const bool in_place = problem.dtype == ImageType::float32 || problem.dtype == ImageType::float64;
  const double bandwidth = device.bandwidth_GBps * 1e9 * (in_place ? 0.7 : 0.35);
  const double rate = device.fp32_TFLOPs * 1e12 * (problem.dtype == ImageType::float64 ? 0.5 : 1);
  for (const Candidate& candidate : kCandidates) {
    const double share = has_own_kernel(problem) ? candidate.own_kernel : candidate.general;
    if (share == 0) continue;
    Plan plan;
    plan.candidate = candidate.name;
    plan.tiling = {{"reuse", static_cast<int64_t>(candidate.reuse)}};
    // What every launch costs, the threads' start among it.
    plan.predicted_us = std::max(problem.bytes() / bandwidth, problem.flops() / (rate * share)) * 1e6 + 3;
    plans.push_back(std::move(plan));
  }
}

}  // namespace convx::filter2d
