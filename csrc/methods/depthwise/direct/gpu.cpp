#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

namespace direct {
// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
}  // namespace direct

void launch_direct(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::float64) return direct::launch_typed<double>(plan, problem, pointers, stream);
  with_element(problem, [&](auto element) {
    direct::launch_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
