#include "methods/pointwise/tensor/launch.cuh"

namespace convx::pointwise::tensor {
template void launch_precision<kFloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void pack_precision<kFloat16>(const Plan&, const ConvProblem&, const void*, void*, Stream);
}  // namespace convx::pointwise::tensor
