#include "methods/pointwise/tensor/launch.cuh"

namespace convx::pointwise::tensor {
template void launch_precision<kSplit>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void pack_precision<kSplit>(const Plan&, const ConvProblem&, const void*, void*, Stream);
}  // namespace convx::pointwise::tensor
