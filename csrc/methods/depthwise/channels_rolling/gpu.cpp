#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

namespace channels_rolling {
// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
}  // namespace channels_rolling

void launch_channels_rolling(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                             Stream stream) {
  with_element(problem, [&](auto element) {
    channels_rolling::launch_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
