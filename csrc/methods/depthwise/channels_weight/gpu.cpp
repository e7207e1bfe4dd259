#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_channels_weight_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                                  Stream stream);

void launch_channels_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                            Stream stream) {
  with_element(problem, [&](auto element) {
    launch_channels_weight_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
