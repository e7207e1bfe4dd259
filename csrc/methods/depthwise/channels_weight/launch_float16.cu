#include "launch.cuh"

namespace convx::depthwise {
template void launch_channels_weight_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
