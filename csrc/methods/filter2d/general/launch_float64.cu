#include "methods/filter2d/general/launch.cuh"

namespace convx::filter2d::general {

template void launch_typed<double>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::general
