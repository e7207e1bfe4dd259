#include "methods/depthwise/family.h"
#include "platform/launch.h"

namespace convx::depthwise {
namespace channels {

// launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace channels

void launch_channels(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (problem.dtype) {
    case DType::float16:
      return channels::launch_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return channels::launch_typed<bfloat16>(plan, problem, pointers, stream);
    default:
      return channels::launch_typed<float>(plan, problem, pointers, stream);
  }
}

}  // namespace convx::depthwise
