#include <algorithm>

#include "methods/filter2d/kernels.h"

namespace convx::filter2d {
namespace {

// Kernels compute places inside an image in 32 bits; sums of a few of these stay below 2^31.
constexpr int64_t kMostAlongAxis = int64_t{1} << 28;

Support gpu_supports(const FilterProblem& p) {
  const struct {
    const char* what;
    int64_t size;
  } sizes[] = {{"height", p.height},
               {"width", p.width},
               {"output height", p.out_height},
               {"output width", p.out_width},
               {"padding at the top", p.padding_top},
               {"padding at the left", p.padding_left},
               {"dilated filter's height", p.filter_height * p.dilation_h + p.stride_h},
               {"dilated filter's width", (p.filter_width + 2) * p.dilation_w + 128 * p.stride_w}};
  for (const auto& [what, size] : sizes) {
    if (size < kMostAlongAxis) continue;
    return Support::no("the " + std::string(what) + ", " + std::to_string(size) + ", is over " +
                       std::to_string(kMostAlongAxis));
  }
  std::vector<Plan> plans;
  append_forms(p, DeviceTraits{}, plans);
  if (plans.empty()) return Support::no("there are too many images for one launch");
  return Support::yes();
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (problem.in_channels != 1) {
    return Support::no("it filters single channels (in_channels is " + std::to_string(problem.in_channels) +
                       ", it must be 1)");
  }
  if (problem.operation != Operation::forward) return Support::no("it has the forward operation alone");
  // One channel lies in memory alike in both layouts.
  if (problem.layout != Layout::nchw && problem.out_channels != 1) {
    return Support::no("its result is nchw where there are several output channels");
  }
  if (const Support padding = supports_padding(problem, device); !padding.ok) return padding;
  return supports_filter(filter_problem(problem), device);
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  return filter_candidates(filter_problem(problem), device);
}

}  // namespace

Support supports_filter(const FilterProblem& problem, const DeviceTraits& device) {
  if (problem.image_elements() == 0 || problem.result_elements() == 0) {
    return Support::no("the images, the filters or the result are empty");
  }
  return device.backend == Backend::cpu ? cpu_supports(problem, device) : gpu_supports(problem);
}

std::vector<Plan> filter_candidates(const FilterProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  if (device.backend == Backend::cpu) {
    append_cpu(problem, device, plans);
  } else {
    append_strip(problem, device, plans);
    append_rotation(problem, device, plans);
    append_forms(problem, device, plans);
  }
  for (Plan& plan : plans) plan.method = &method;
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  return plans;
}

Plan plan_filter(const FilterProblem& problem, const DeviceTraits& device, const std::string& algorithm) {
  const Support support = supports_filter(problem, device);
  if (!support.ok) {
    throw InvalidArgument("filter2d can't run this problem: " + support.reason + " (" + describe(problem) +
                          ", on " + device.name + ")");
  }
  const std::vector<Plan> plans = filter_candidates(problem, device);
  if (algorithm == "auto" || algorithm == method.name) return plans.front();
  const std::string prefix = std::string(method.name) + "/";
  const std::string name = algorithm.rfind(prefix, 0) == 0 ? algorithm.substr(prefix.size()) : algorithm;
  std::string names;
  for (const Plan& plan : plans) {
    if (plan.candidate == name) return plan;
    if ((", " + names + ",").find(", " + plan.candidate + ",") == std::string::npos) {
      names += (names.empty() ? "" : ", ") + plan.candidate;
    }
  }
  throw InvalidArgument("algorithm '" + algorithm + "' can't run " + describe(problem) + ", on " +
                        device.name + "; what can: auto, " + names);
}

const Method method = {"filter2d",
                       "column reuse and row reuse on single-channel images (Lu, Zhang, Wang 2020)", supports,
                       candidates};

}  // namespace convx::filter2d
