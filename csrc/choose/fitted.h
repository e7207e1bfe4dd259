// Times by a model of random layers, for those that are unlike all that were measured by name.
#pragma once
#include <string>

#include "choose/measured.h"

namespace convx {

// Of the plan that an estimate, or what was extrapolated, expects the fastest of an algorithm's. Nothing for
// devices that the model was not made on, kernels and kinds of layers that too few of its layers have had,
// and layers outside of what it has seen.
Measured fitted_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device,
                     double estimate_us);
template <class Problem>
Measured fitted_time(const std::string& /*algorithm*/, const Problem& /*problem*/,
                     const DeviceTraits& /*device*/, double /*estimate_us*/) {
  return {};
}

// Whether that is what a plan is predicted by.
bool is_fitted(const Plan& plan);

}  // namespace convx
