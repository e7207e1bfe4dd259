#include "methods/depthwise/strip/launch.cuh"

namespace convx::depthwise::strip {

template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::strip
