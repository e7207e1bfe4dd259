#include "launch.cuh"

namespace convx::depthwise {
template void launch_strip_weight_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
