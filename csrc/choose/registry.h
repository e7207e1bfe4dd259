// The one table of methods: dispatch, explain(), tests and benchmarks loop over it.
#pragma once
#include <string>
#include <vector>

#include "plan/method.h"

namespace convx {

// In order of registration; "native", torch's own convolution, is the last and supports everything.
const std::vector<const Method*>& methods();

// Throws InvalidArgument, listing what exists, unless algorithm is "auto" or begins with a method's name, or
// is several such as "first|second".
void check_algorithm(const std::string& algorithm);

// What a gradient is asked for, where the forward operation is asked for algorithm: the method, whose
// candidates
// ("depthwise/strip") are kernels of one operation, and auto where the method does not have the gradient.
std::string algorithm_of_gradients(const std::string& algorithm);

struct Choice {
  Plan plan;
  bool forced = false;  // named by the user rather than chosen
  std::string why;
};

// algorithm: "auto", a method ("depthwise"), one of its candidates ("depthwise/strip"), or one plan of those
// by its name_of ("depthwise/strip rows=4 columns=4"), or several of all these, "hntmp|auto", of which the
// first whose method can run the problem counts. auto takes what was tuned for this very problem, or else
// torch's convolution, unless something was measured ahead of it on layers like this one: then what has the
// least time. What was not measured on such layers is not predicted from others. A named one that can't run
// throws InvalidArgument with the condition that fails and what could run instead.
Choice select(const ConvProblem& problem, const DeviceTraits& device, const std::string& algorithm);
// What auto takes where nothing was tuned.
Choice select_untuned(const ConvProblem& problem, const DeviceTraits& device);

struct Explanation {
  const Method* method;
  Support support;
  std::vector<Plan> plans;  // empty where support.ok is false
  bool chosen = false;      // what auto takes
};
std::vector<Explanation> explain(const ConvProblem& problem, const DeviceTraits& device);

}  // namespace convx
