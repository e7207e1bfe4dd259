#include "choose/offers.h"

#include <algorithm>

namespace convx {
namespace {

ConvProblem sums_of(ConvProblem problem) {
  problem.epilogue = {};
  return problem;
}

}  // namespace

Support supports(const Method& method, const ConvProblem& problem, const DeviceTraits& device) {
  const Support support = method.supports(problem, device);
  return support.ok || !problem.epilogue.is_more_than_bias() ? support
                                                             : method.supports(sums_of(problem), device);
}

std::vector<Plan> candidates(const Method& method, const ConvProblem& problem, const DeviceTraits& device) {
  if (!problem.epilogue.is_more_than_bias()) return method.candidates(problem, device);
  std::vector<Plan> plans;
  if (method.supports(problem, device).ok) plans = method.candidates(problem, device);
  const size_t own = plans.size();
  for (Plan& plan : method.candidates(sums_of(problem), device)) {
    const auto is_same = [&plan](const Plan& other) { return other.candidate == plan.candidate; };
    if (std::any_of(plans.begin(), plans.begin() + own, is_same)) continue;
    plan.finishes_apart = true;
    plan.beside_us += finishing_us(problem, device);
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace convx
