#include "methods/depthwise/family.h"
#include "platform/launch.h"

namespace convx::depthwise {
namespace direct {

// launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<double>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace direct

void launch_direct(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (problem.dtype) {
    case DType::float32:
      return direct::launch_typed<float>(plan, problem, pointers, stream);
    case DType::float64:
      return direct::launch_typed<double>(plan, problem, pointers, stream);
    case DType::float16:
      return direct::launch_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return direct::launch_typed<bfloat16>(plan, problem, pointers, stream);
  }
}

}  // namespace convx::depthwise
