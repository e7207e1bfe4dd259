#include "methods/depthwise/channels/launch.cuh"

namespace convx::depthwise::channels {
template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
