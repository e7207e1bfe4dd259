#include <algorithm>
#include <map>

#include "methods/depthwise/depthwise.h"
#include "methods/depthwise/family.h"
#include "select/measured.h"

namespace convx::depthwise {

namespace {

using Families = std::vector<const Family*>;

// What there is on each kind of device. A family added here is planned, explained, tested and measured.
const Families& families(Backend backend) {
  static const Families cpu = {&cpu_family};
  static const Families gpu = {&strip_family,           &plane_family,        &plane_split_family,
                               &channels_family,        &strip_weight_family, &plane_weight_family,
                               &channels_weight_family, &direct_family};
  return backend == Backend::cpu ? cpu : gpu;
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
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

// Where a kernel was measured on problems like this, its best tiling is taken to have that time; the family's
// estimates tell how the other tilings compare.
void take_measured_times(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  std::map<std::string, double> least;
  for (const Plan& plan : plans) {
    const auto [found, first] = least.emplace(plan.candidate, plan.predicted_us);
    if (!first) found->second = std::min(found->second, plan.predicted_us);
  }
  for (const auto& [candidate, estimate] : least) {
    const Measured measured = measured_time("depthwise/" + candidate, problem, device);
    if (!measured) continue;
    for (Plan& plan : plans) {
      if (plan.candidate != candidate) continue;
      if (plan.predicted_us == estimate) plan.source = measured.source;
      plan.predicted_us *= measured.us / estimate;
    }
  }
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  for (const Family* family : families(device.backend)) {
    if (!family->supports(problem, device).ok) continue;
    const size_t first = plans.size();
    family->append(problem, device, plans);
    for (size_t i = first; i < plans.size(); ++i) plans[i].method = &method;
  }
  take_measured_times(problem, device, plans);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  return plans;
}

}  // namespace

const Method method = {
    "depthwise", "row reuse (Liu et al. 2024) and column reuse (Lu, Zhang, Wang 2020), one channel a group",
    supports, candidates};

}  // namespace convx::depthwise
