#include "methods/depthwise/strip/launch.cuh"

namespace convx::depthwise {

namespace strip {
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace strip

void launch_strip(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::float16) return strip::launch_typed<float16>(plan, problem, pointers, stream);
  if (problem.dtype == DType::bfloat16) return strip::launch_typed<bfloat16>(plan, problem, pointers, stream);
  return strip::launch_typed<float>(plan, problem, pointers, stream);
}

}  // namespace convx::depthwise
