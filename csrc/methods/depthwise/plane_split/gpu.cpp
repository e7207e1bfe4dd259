#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {

namespace plane_split {
// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
}  // namespace plane_split

void launch_plane_split(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  with_element(problem, [&](auto element) {
    plane_split::launch_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
