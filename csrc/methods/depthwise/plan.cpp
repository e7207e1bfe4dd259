#include <algorithm>

#include "methods/depthwise/depthwise.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

namespace {

using Families = std::vector<const Family*>;

// What there is on each kind of device. A family added here is planned, explained, tested and measured.
const Families& families(Backend backend) {
  static const Families cpu = {&cpu_family};
  static const Families gpu = {&strip_family,
                               &plane_family,
                               &plane_split_family,
                               &channels_family,
                               &channels_rolling_family,
                               &strip_weight_family,
                               &plane_weight_family,
                               &channels_weight_family,
                               &shared_rows_family,
                               &banded_family,
                               &direct_family};
  return backend == Backend::cpu ? cpu : gpu;
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support epilogue = supports_epilogue(problem, device); !epilogue.ok) return epilogue;
  if (!problem.is_depthwise()) {
    return Support::no("it is not depthwise (groups " + std::to_string(problem.groups) + ", input channels " +
                       std::to_string(problem.in_channels) + "; they must be equal)");
  }
  if (problem.batch == 0) return Support::no("the batch is empty");
  std::string reasons;
  for (const Family* family : families(device.backend)) {
    const Support support = family->supports(problem, device);
    if (support.ok) return support;
    reasons += (reasons.empty() ? "" : "; ") + std::string(family->name) + ": " + support.reason;
  }
  return Support::no(reasons);
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  for (const Family* family : families(device.backend)) {
    if (!family->supports(problem, device).ok) continue;
    const size_t first = plans.size();
    family->append(problem, device, plans);
    for (size_t i = first; i < plans.size(); ++i) plans[i].method = &method;
  }
  return plans;
}

}  // namespace

const Method method = {
    "depthwise", "row reuse (Liu et al. 2024) and column reuse (Lu, Zhang, Wang 2020), one channel a group",
    supports, candidates};

}  // namespace convx::depthwise
