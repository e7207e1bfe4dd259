#include "methods/pointwise/fma/launch.cuh"

namespace convx::pointwise::fma {
template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void launch_weight_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace convx::pointwise::fma
