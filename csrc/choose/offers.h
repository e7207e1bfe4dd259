// What methods offer for a problem, with an epilogue that their kernels have not as a pass after them.
#pragma once
#include <vector>

#include "plan/method.h"

namespace convx {

// Whether the method can run the problem, if need be finishing its sums apart.
Support supports(const Method& method, const ConvProblem& problem, const DeviceTraits& device);
// Of other kinds of problem: as the method has it.
template <class Problem>
Support supports(const MethodOf<Problem>& method, const Problem& problem, const DeviceTraits& device) {
  return method.supports(problem, device);
}

// The candidates of a method that supports it: those that have the epilogue in them, and what else there is
// without one, Plan::finishes_apart.
std::vector<Plan> candidates(const Method& method, const ConvProblem& problem, const DeviceTraits& device);
template <class Problem>
std::vector<Plan> candidates(const MethodOf<Problem>& method, const Problem& problem,
                             const DeviceTraits& device) {
  return method.candidates(problem, device);
}

}  // namespace convx
