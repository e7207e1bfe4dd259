#include "methods/filter2d/reuse/launch.cuh"

namespace convx::filter2d::reuse {

template void launch_typed<uint8_t>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::reuse
