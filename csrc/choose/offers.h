// What methods offer for a problem, with an epilogue that their kernels have not as a pass after them.
#pragma once
#include <vector>

#include "plan/method.h"
#include "problem/filter_problem.h"

namespace convx {

// Whether the method can run the problem, if need be finishing its sums apart.
Support supports(const Method& method, const ConvProblem& problem, const DeviceTraits& device);
Support supports(const MethodOf<FilterProblem>& method, const FilterProblem& problem,
                 const DeviceTraits& device);

// The candidates of a method that supports it: those that have the epilogue in them, and what else there is
// without one, Plan::finishes_apart.
std::vector<Plan> candidates(const Method& method, const ConvProblem& problem, const DeviceTraits& device);
std::vector<Plan> candidates(const MethodOf<FilterProblem>& method, const FilterProblem& problem,
                             const DeviceTraits& device);

}  // namespace convx
