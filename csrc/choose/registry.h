// The one table of methods for each kind of problem: dispatch, explain(), tests and benchmarks loop over it.
// Templates are of ConvProblem, FilterProblem, BlockProblem and ExciteProblem.
#pragma once
#include <string>
#include <vector>

#include "plan/method.h"
#include "problem/block_problem.h"
#include "problem/excite_problem.h"
#include "problem/filter_problem.h"

namespace convx {

// In order of registration. Of convolutions "native", torch's own, is the last and supports everything, as it
// does of blocks and squeeze-and-excitations, where it is one operator after the other; filterings have no
// such method.
template <class Problem>
const std::vector<const MethodOf<Problem>*>& methods();
template <>
const std::vector<const MethodOf<ConvProblem>*>& methods();
template <>
const std::vector<const MethodOf<FilterProblem>*>& methods();
template <>
const std::vector<const MethodOf<BlockProblem>*>& methods();
template <>
const std::vector<const MethodOf<ExciteProblem>*>& methods();

// Throws InvalidArgument, listing what exists, unless algorithm is "auto" or begins with a method's name, or
// is several such as "first|second". Where one method is all that there is, its candidates go by their own
// names too ("both" for "filter2d/both"): which those are, a problem has to tell.
template <class Problem = ConvProblem>
void check_algorithm(const std::string& algorithm);

// What a gradient is asked for, where the forward operation is asked for algorithm: the method, whose
// candidates ("depthwise/strip") are kernels of one operation, and auto where the method does not have the
// gradient.
std::string algorithm_of_gradients(const std::string& algorithm);

struct Choice {
  Plan plan;
  bool forced = false;  // named by the user rather than chosen
  std::string why;
};

// algorithm: "auto", a method ("depthwise"), one of its candidates ("depthwise/strip"), or one plan of those
// by its name_of ("depthwise/strip rows=4 columns=4"), or several of all these, "depthwise/strip|hntmp|auto",
// of which the first that can run the problem counts. auto takes what was tuned for this very problem. Else
// it takes torch's convolution, unless something was measured ahead of it on layers like this one, or a model
// of random layers has it ahead by more than it errs: then what has the least time. Of filterings, for which
// torch has no operator, it takes the one with the least predicted time. A named one that can't run throws
// InvalidArgument with the condition that fails and what could run instead.
template <class Problem>
Choice select(const Problem& problem, const DeviceTraits& device, const std::string& algorithm);
// What auto takes where nothing was tuned.
template <class Problem>
Choice select_untuned(const Problem& problem, const DeviceTraits& device);

struct Explanation {
  const MethodFacts* method;
  Support support;
  std::vector<Plan> plans;  // empty where support.ok is false
  bool chosen = false;      // what auto takes
};
template <class Problem>
std::vector<Explanation> explain(const Problem& problem, const DeviceTraits& device);

}  // namespace convx
