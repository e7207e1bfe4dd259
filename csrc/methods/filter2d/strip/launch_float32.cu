#include "methods/filter2d/strip/launch.cuh"

namespace convx::filter2d::strip {

template void launch_typed<float>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::strip
