#include <algorithm>

#include "methods/hntmp/candidates.h"
#include "methods/hntmp/forms/forms.h"
#include "methods/hntmp/hntmp.h"

namespace convx::hntmp {
namespace {

std::string pair(int64_t height, int64_t width) {
  return "(" + std::to_string(height) + ", " + std::to_string(width) + ")";
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support epilogue = supports_epilogue(problem, device); !epilogue.ok) return epilogue;
  if (problem.operation == Operation::weight_grad) {
    return Support::no("it computes forward and input_grad, not weight_grad");
  }
  if (problem.operation == Operation::input_grad && (problem.stride_h != 1 || problem.stride_w != 1)) {
    return Support::no("its input_grad needs stride 1, not " + pair(problem.stride_h, problem.stride_w));
  }
  if (problem.batch == 0) return Support::no("the batch is empty");
  if (const Support padding = supports_padding(problem, device); !padding.ok) return padding;
  return device.backend == Backend::cpu ? cpu_supports(problem, device) : gpu_supports(problem, device);
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans =
      device.backend == Backend::cpu ? cpu_candidates(problem, device) : gpu_candidates(problem, device);
  for (Plan& plan : plans) plan.method = &method;
  return plans;
}

std::string why_absent(const ConvProblem& problem, const DeviceTraits& device, const std::string& candidate) {
  return device.backend == Backend::cpu ? "" : forms::why_absent(problem, candidate);
}

}  // namespace

const Method method = {"hntmp", "threads own output channels and a tile of pixels in registers (Ji 2019)",
                       supports, candidates, why_absent};

}  // namespace convx::hntmp
