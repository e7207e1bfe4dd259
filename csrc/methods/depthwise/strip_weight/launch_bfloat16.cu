#include "launch.cuh"

namespace convx::depthwise {
template void launch_strip_weight_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}
