#include "methods/depthwise/strip/launch.cuh"

namespace convx::depthwise::strip {

template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::strip
