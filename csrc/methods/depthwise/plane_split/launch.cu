#include "methods/depthwise/plane_split/launch.cuh"

namespace convx::depthwise {

namespace plane_split {
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace plane_split

void launch_plane_split(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  if (problem.dtype == DType::float16)
    return plane_split::launch_typed<float16>(plan, problem, pointers, stream);
  if (problem.dtype == DType::bfloat16)
    return plane_split::launch_typed<bfloat16>(plan, problem, pointers, stream);
  return plane_split::launch_typed<float>(plan, problem, pointers, stream);
}

}  // namespace convx::depthwise
