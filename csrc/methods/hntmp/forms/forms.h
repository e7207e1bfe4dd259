// HNTMP as it was published, and the direct convolution that the paper holds it against (Ji 2019, section 3.3
// and algorithms 1 and 2): for those who name them, nothing improved.
#pragma once
#include <string>
#include <vector>

#include "methods/hntmp/forms/geometry.h"
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::hntmp::forms {

// Those of forms/kernels.cuh.
std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device);
// Why there is no candidate of that name, where it is one of these.
std::string why_absent(const ConvProblem& problem, const std::string& candidate);
bool is_form(const std::string& candidate);

inline Tiling tiling_of(const Plan& plan) {
  return {static_cast<Form>(plan.kernel), plan["rows"], plan["columns"], plan["block_channels"]};
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::hntmp::forms
