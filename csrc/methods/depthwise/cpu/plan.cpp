// CPU candidates of the depthwise method: "rows", "blocked" and "reuse" for the common filters, "general" for
// everything.
#include <algorithm>

#include "methods/depthwise/cpu/job.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend != Backend::cpu) return Support::no("the cpu kernels run on the CPU only");
  if (!problem.is_depthwise()) return Support::no("groups must equal in_channels");
  // Sums of a few places in it have to fit 64 bits.
  if (std::max(problem.padded_height(), problem.padded_width()) >= int64_t{1} << 60) {
    return Support::no("the padded input must have fewer than 2^60 rows and columns");
  }
  return Support::yes();
}

// Whether a full vector of channels exists, each with one filter.
bool lanes_fit_channels(const ConvProblem& problem, const DeviceTraits& device) {
  return problem.out_channels_per_group() == 1 &&
         problem.in_channels >= vector_lanes(device.isa, problem.dtype);
}

// Filters and strides that the fast kernels exist for.
bool is_common(const ConvProblem& problem) {
  const int64_t filter = problem.filter_height, stride = problem.stride_h;
  if (filter != problem.filter_width || stride != problem.stride_w) return false;
  if (problem.dilation_h != 1 || problem.dilation_w != 1 || problem.dtype == DType::float64) return false;
  return ((filter == 3 || filter == 5) && (stride == 1 || stride == 2)) || (filter == 7 && stride == 1);
}

bool can_run(Algorithm algorithm, const ConvProblem& problem, const DeviceTraits& device) {
  const bool channels_last = problem.layout == Layout::nhwc;
  // Lanes along columns do not sum a gradient over several filters of a channel.
  const bool one_filter = problem.operation != Operation::input_grad || problem.out_channels_per_group() == 1;
  switch (algorithm) {
    case Algorithm::general:
      return true;
    case Algorithm::blocked:
      return is_common(problem) && lanes_fit_channels(problem, device) &&
             !(channels_last && problem.dtype == DType::float32);
    case Algorithm::reuse:
      return is_common(problem) && !channels_last && problem.dtype == DType::float32 &&
             device.isa != CpuIsa::baseline && problem.stride_w == 1 &&
             problem.in_width == problem.out_width && problem.padding_left == problem.filter_width / 2 &&
             problem.operation != Operation::weight_grad && one_filter;
    case Algorithm::rows: {
      if (!is_common(problem)) return false;
      const bool wide = problem.dtype == DType::float32;
      if (!channels_last) {
        return wide && one_filter;
      }
      // The 16-bit formats have the sweep without a stride to undo, where conversion is an instruction.
      const bool plain = problem.operation == Operation::forward ||
                         (problem.operation == Operation::input_grad && problem.stride_h == 1);
      return lanes_fit_channels(problem, device) && (wide || (plain && device.isa != CpuIsa::baseline));
    }
  }
  return false;
}

// Bytes of each pixel that a thread should have to itself where threads share pixels. With less, cores fetch
// lines that belong to others; a power of two leaves each a part of its cache's sets (two threads with half
// of 512 bytes each take twice the time, with half of 768 bytes as long as with whole pixels).
constexpr int64_t kPixelBytesPerThread = 384;

// Parts of the batch's rows that are summed apart: where channels alone would load the threads unevenly, or
// give them slivers of pixels. The result depends on it, so it is part of the plan: the same plan gives the
// same bits.
int64_t weight_grad_slices(const ConvProblem& problem, const DeviceTraits& device, Algorithm algorithm,
                           bool lanes_along_channels) {
  const int64_t threads = std::max(device.threads, 1);
  if (problem.operation != Operation::weight_grad || threads == 1) return 1;
  const int64_t lanes = lanes_along_channels ? vector_lanes(device.isa, problem.dtype) : 1;
  const int64_t parts = (problem.in_channels + lanes - 1) / lanes;
  const bool share_pixels = lanes_along_channels && algorithm != Algorithm::blocked;
  const int64_t pixel_bytes = problem.in_channels * element_size(problem.dtype);
  // Shares of the channels, each with as many threads as there are slices.
  int64_t shares = share_pixels ? std::min(threads, pixel_bytes / kPixelBytesPerThread) : threads;
  for (; shares > 1; --shares) {
    const int64_t rounds = (parts + shares - 1) / shares;
    if (threads % shares == 0 && 10 * parts >= 9 * rounds * shares) break;
  }
  const int64_t slices = threads / std::max<int64_t>(shares, 1);
  return std::max<int64_t>(1, std::min(slices, problem.batch * problem.out_height));
}

// Shares of the memory and arithmetic rates that the kernels reach, measured on two cores with AVX-512.
struct Efficiency {
  double bandwidth, arithmetic;
};

// Every tap loads its pixel again, so that 16-bit formats take the time of float. Lanes along columns gather
// one by one where there is a stride.
Efficiency general_efficiency(const ConvProblem& problem, const DeviceTraits& device) {
  const double wide = problem.dtype == DType::float64 ? 0.5 : 1,
               narrow = element_size(problem.dtype) == 2 ? 0.45 : 1;
  const bool weight_grad = problem.operation == Operation::weight_grad;
  if (problem.layout == Layout::nhwc && lanes_fit_channels(problem, device)) {
    return {(weight_grad ? 0.25 : 0.5) * narrow, 0.35 * wide};
  }
  if (weight_grad) return {0.2 * narrow, 0.4 * wide};
  if (problem.stride_w > 1) return {0.045 * narrow, 0.08 * wide};
  return {0.11 * narrow, 0.25 * wide};
}

Efficiency efficiency(Algorithm algorithm, const ConvProblem& problem, const DeviceTraits& device) {
  if (algorithm == Algorithm::general) return general_efficiency(problem, device);
  if (problem.dtype != DType::float32 && problem.layout == Layout::nhwc) {
    if (algorithm == Algorithm::blocked) return {0.2, 0.5};
    return {problem.stride_w == 1 ? 0.23 : 0.42, 0.95};  // a stride leaves less to narrow
  }
  if (problem.layout == Layout::nhwc) return {0.6, 1.2};
  // Rows that leave half of a vector empty wait for each other.
  if (algorithm == Algorithm::reuse) {
    return problem.out_width >= 15 ? Efficiency{0.75, 1.4} : Efficiency{0.3, 0.5};
  }
  // Lanes along columns win on wide planes without a stride; a last block that repeats channels costs the
  // other.
  if (algorithm == Algorithm::rows) {
    if (problem.operation == Operation::weight_grad) return {0.2, 0.3};
    return problem.stride_w == 1 && problem.out_width >= 40 ? Efficiency{0.45, 0.8} : Efficiency{0.25, 0.4};
  }
  const int64_t lanes = vector_lanes(device.isa, problem.dtype);
  const int64_t blocks = (problem.in_channels + lanes - 1) / lanes;
  const double used = static_cast<double>(problem.in_channels) / static_cast<double>(blocks * lanes);
  return {0.4 * used, 0.75 * used};
}

void append_candidate(const char* name, Algorithm algorithm, const ConvProblem& problem,
                      const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!can_run(algorithm, problem, device)) return;
  Plan plan;
  plan.candidate = name;
  plan.kernel = kCpu;
  const bool lanes_along_channels = algorithm == Algorithm::blocked ||
                                    (problem.layout == Layout::nhwc && lanes_fit_channels(problem, device));
  const int64_t slices = weight_grad_slices(problem, device, algorithm, lanes_along_channels);
  plan.tiling = {{"algorithm", static_cast<int64_t>(algorithm)},
                 {"vector_lanes", vector_lanes(device.isa, problem.dtype)},
                 {"lanes_along_channels", lanes_along_channels ? 1 : 0},
                 {"slices", slices}};
  const int64_t accumulator_size = problem.dtype == DType::float64 ? 8 : 4;
  plan.workspace_bytes = slices > 1 ? slices * problem.weight_elements() * accumulator_size : 0;
  const Efficiency share = efficiency(algorithm, problem, device);
  const double seconds = std::max(problem.bytes() / (device.bandwidth_GBps * 1e9 * share.bandwidth),
                                  problem.flops() / (device.fp32_TFLOPs * 1e12 * share.arithmetic));
  plan.predicted_us = seconds * 1e6 + 3;
  plans.push_back(std::move(plan));
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  append_candidate("rows", Algorithm::rows, problem, device, plans);
  append_candidate("blocked", Algorithm::blocked, problem, device, plans);
  append_candidate("reuse", Algorithm::reuse, problem, device, plans);
  append_candidate("general", Algorithm::general, problem, device, plans);
  std::sort(plans.begin(), plans.end(),
            [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
}

}  // namespace

const Family cpu_family{"cpu", supports, append};

}  // namespace convx::depthwise
