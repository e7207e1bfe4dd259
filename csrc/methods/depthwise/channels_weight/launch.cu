#include "launch.cuh"

namespace convx::depthwise {

void launch_channels_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                            Stream stream) {
  switch (problem.dtype) {
    case DType::float16:
      return launch_channels_weight_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return launch_channels_weight_typed<bfloat16>(plan, problem, pointers, stream);
    default:
      return launch_channels_weight_typed<float>(plan, problem, pointers, stream);
  }
}

}  // namespace convx::depthwise
