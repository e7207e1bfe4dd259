// CPU candidates of filter2d: the two reuses of the paper, each alone, both and none.
#include <algorithm>

#include "methods/filter2d/cpu/job.h"
#include "methods/filter2d/filter2d.h"

namespace convx::filter2d {
namespace {

// Nanoseconds of one core for a pixel and, beside, for each of the filter's taps, measured on an AVX-512
// server with images of 1024 x 1024 in every type. The tiles for any filter read their sizes at run time.
struct Cost {
  double pixel, tap;
};
struct Candidate {
  const char* name;
  Reuse reuse;
  Cost own_kernel, general;
  bool is_comparison;  // the paper's, where filters have kernels of their own: slower than one of the others
};
constexpr Cost kNone = {0, 0};
constexpr Candidate kCandidates[] = {
    {"row_reuse", Reuse::rows, {0.25, 0.0165}, {0.35, 0.026}, false},
    {"both", Reuse::both, {0.15, 0.023}, kNone, false},
    {"direct", Reuse::none, {0.3, 0.038}, {0.3, 0.04}, true},
    {"column_reuse", Reuse::columns, {0.2, 0.036}, kNone, true},
};

// How much longer narrower vectors take. Shifts across a register are one instruction in AVX-512 alone.
double isa_factor(CpuIsa isa, Reuse reuse) {
  const bool shifts = reuse == Reuse::columns || reuse == Reuse::both;
  switch (isa) {
    case CpuIsa::avx512:
      return 1;
    case CpuIsa::avx2:
      return shifts ? 2 : 1.6;
    case CpuIsa::baseline:
      return shifts ? 6 : 4.5;
  }
  return 1;
}

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
  const double results = static_cast<double>(problem.result_elements());
  const double taps = static_cast<double>(problem.filter_height * problem.filter_width);
  const double memory_ns = problem.bytes() / device.bandwidth_GBps;
  for (const Candidate& candidate : kCandidates) {
    const Cost& cost = has_own_kernel(problem) ? candidate.own_kernel : candidate.general;
    if (cost.tap == 0) continue;
    double core_ns = results * (cost.pixel + cost.tap * taps) * isa_factor(device.isa, candidate.reuse);
    if (problem.dtype == ImageType::float64) core_ns *= 2;
    Plan plan;
    plan.candidate = candidate.name;
    plan.tiling = {{"reuse", static_cast<int64_t>(candidate.reuse)}};
    plan.by_name_only = candidate.is_comparison && has_own_kernel(problem);
    // What every call costs, beside.
    plan.predicted_us = std::max(core_ns / device.threads, memory_ns) * 1e-3 + 3;
    plans.push_back(std::move(plan));
  }
}

}  // namespace convx::filter2d
