#include "methods/filter2d/kernels.h"

namespace convx::filter2d {
namespace {

// Kernels compute places inside an image in 32 bits; sums of a few of these stay below 2^31.
constexpr int64_t kMostAlongAxis = int64_t{1} << 28;

Support gpu_supports(const FilterProblem& p) {
  if (p.epilogue.is_more_than_bias()) return Support::no(kAddsBiasAlone);
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

Support supports(const FilterProblem& problem, const DeviceTraits& device) {
  if (problem.image_elements() == 0 || problem.result_elements() == 0) {
    return Support::no("the images, the filters or the result are empty");
  }
  return device.backend == Backend::cpu ? cpu_supports(problem, device) : gpu_supports(problem);
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
  return supports(filter_problem(problem), device);
}

// No plan has a workspace.
std::vector<Plan> plans_of(const FilterProblem& problem, const DeviceTraits& device,
                           const MethodFacts& facts) {
  std::vector<Plan> plans;
  if (device.backend == Backend::cpu) {
    append_cpu(problem, device, plans);
  } else {
    append_strip(problem, device, plans);
    append_rotation(problem, device, plans);
    append_forms(problem, device, plans);
  }
  for (Plan& plan : plans) plan.method = &facts;
  return plans;
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  return plans_of(filter_problem(problem), device, method);
}

std::vector<Plan> candidates(const FilterProblem& problem, const DeviceTraits& device) {
  return plans_of(problem, device, filtering);
}

constexpr MethodFacts kFacts = {"filter2d",
                                "column reuse and row reuse on single-channel images (Lu, Zhang, Wang 2020)"};

}  // namespace

const Method method = {kFacts, supports, candidates};
const MethodOf<FilterProblem> filtering = {kFacts, supports, candidates};

}  // namespace convx::filter2d
