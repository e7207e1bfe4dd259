// From a plan to a launch, for one element type.
#pragma once
#include "methods/gates/launching.cuh"
#include "methods/squeeze_excite/pixels.cuh"
#include "methods/squeeze_excite/planes.cuh"
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx::squeeze_excite {

template <class T>
void launch_typed(const Plan& plan, const ExciteProblem& p, const Pointers& pointers, Stream stream) {
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(p, t);
  const Arguments<T> arguments = arguments_of<T>(p, t, g, pointers);
  Grid grid;
  grid.x = static_cast<uint32_t>(p.batch * t.ranks), grid.cluster = static_cast<uint32_t>(t.ranks);
  with_lanes(t.lanes, [&](auto lanes) {
    const auto kernel = p.layout == Layout::nhwc
                            ? squeeze_excite_kernel<T, lanes.value, Pixels<T> >
                            : squeeze_excite_kernel<T, lanes.value, Planes<lanes.value, T> >;
    launch_in_turn(kernel, kExciteOperation, grid, kThreads, static_cast<uint32_t>(g.shared_bytes), stream,
                   arguments);
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ExciteProblem&, const Pointers&, Stream);

}  // namespace convx::squeeze_excite
