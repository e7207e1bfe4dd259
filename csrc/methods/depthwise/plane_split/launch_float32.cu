#include "methods/depthwise/plane_split/launch.cuh"

namespace convx::depthwise::plane_split {

template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::plane_split
