#include "methods/hntmp/launch.cuh"

namespace convx::hntmp {

template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::hntmp
