#include "methods/filter2d/rotation/launch.cuh"

namespace convx::filter2d::rotation {

template void launch_typed<float>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::rotation
