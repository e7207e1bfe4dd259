// CPU candidates of the depthwise method: "rows" for the common filters, "general" for everything.
#include <algorithm>

#include "methods/depthwise/cpu/job.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend != Backend::cpu) return Support::no("the cpu kernels run on the CPU only");
  if (!problem.is_depthwise()) return Support::no("groups must equal in_channels");
  return Support::yes();
}

bool lanes_along_channels(const ConvProblem& problem, const DeviceTraits& device) {
  return problem.layout == Layout::nhwc && problem.out_channels_per_group() == 1 &&
         problem.in_channels >= vector_lanes(device.isa, problem.dtype);
}

bool rows_can_run(const ConvProblem& problem, const DeviceTraits& device) {
  const int64_t filter = problem.filter_height, stride = problem.stride_h;
  const bool common =
      filter == problem.filter_width && stride == problem.stride_w && problem.dilation_h == 1 &&
      problem.dilation_w == 1 &&
      (((filter == 3 || filter == 5) && (stride == 1 || stride == 2)) || (filter == 7 && stride == 1));
  if (!common || problem.dtype == DType::float64) return false;
  if (problem.layout == Layout::nhwc) return lanes_along_channels(problem, device);
  return problem.operation != Operation::input_grad || problem.out_channels_per_group() == 1;
}

// Parts of the batch's rows that are summed apart: where channels alone would load the threads unevenly. The
// result depends on it, so it is part of the plan: the same plan gives the same bits.
int64_t weight_grad_slices(const ConvProblem& problem, const DeviceTraits& device) {
  const int64_t threads = std::max(device.threads, 1);
  if (problem.operation != Operation::weight_grad || threads == 1) return 1;
  const int64_t lanes = lanes_along_channels(problem, device) ? vector_lanes(device.isa, problem.dtype) : 1;
  const int64_t parts = (problem.in_channels + lanes - 1) / lanes;
  const int64_t rounds = (parts + threads - 1) / threads;
  if (10 * parts >= 9 * rounds * threads) return 1;
  return std::max<int64_t>(1, std::min(threads, problem.batch * problem.out_height));
}

// Shares of the memory and arithmetic rates that the kernels reach, measured on two cores with AVX-512.
struct Efficiency {
  double bandwidth, arithmetic;
};
Efficiency efficiency(const ConvProblem& problem, bool rows) {
  if (!rows) return {0.15, 0.08};
  const bool channels_last = problem.layout == Layout::nhwc;
  if (problem.operation == Operation::weight_grad)
    return channels_last ? Efficiency{0.6, 0.45} : Efficiency{0.4, 0.3};
  return channels_last ? Efficiency{0.6, 0.5} : Efficiency{0.4, 0.3};
}

void append_candidate(const char* name, bool rows, const ConvProblem& problem, const DeviceTraits& device,
                      std::vector<Plan>& plans) {
  Plan plan;
  plan.candidate = name;
  plan.kernel = kCpu;
  const int64_t slices = weight_grad_slices(problem, device);
  plan.tiling = {{"row_reuse", rows ? 1 : 0},
                 {"vector_lanes", vector_lanes(device.isa, problem.dtype)},
                 {"lanes_along_channels", lanes_along_channels(problem, device) ? 1 : 0},
                 {"slices", slices}};
  const int64_t accumulator_size = problem.dtype == DType::float64 ? 8 : 4;
  plan.workspace_bytes = slices > 1 ? slices * problem.weight_elements() * accumulator_size : 0;
  const Efficiency share = efficiency(problem, rows);
  const double seconds = std::max(problem.bytes() / (device.bandwidth_GBps * 1e9 * share.bandwidth),
                                  problem.flops() / (device.fp32_TFLOPs * 1e12 * share.arithmetic));
  plan.predicted_us = seconds * 1e6 + 3;
  plans.push_back(std::move(plan));
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  if (rows_can_run(problem, device)) append_candidate("rows", true, problem, device, plans);
  append_candidate("general", false, problem, device, plans);
}

}  // namespace

const Family cpu_family{"cpu", supports, append};

}  // namespace convx::depthwise
