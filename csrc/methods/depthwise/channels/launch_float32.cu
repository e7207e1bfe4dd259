#include "methods/depthwise/channels/launch.cuh"

namespace convx::depthwise::channels {
template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
