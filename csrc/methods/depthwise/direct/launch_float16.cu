#include "methods/depthwise/direct/launch.cuh"

namespace convx::depthwise::direct {
template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
