// From a plan to launches, for one element type.
#pragma once
#include "methods/inverted_residual/banded/banded.h"
#include "platform/gpu/launch.h"

#if !defined(CONVX_HIP)  // no AMD GPU is ever given such a plan: launch.cu
#include "methods/inverted_residual/banded/start.cuh"

namespace convx::inverted_residual::banded {

template <class T, int Filter, int Stride>
void start_inside(const BlockProblem& p, const Tiling& t, const Geometry& g, const Arguments<T>& arguments,
                  Stream stream) {
  if (p.activation == Activation::hardswish) {
    start<End::project, T, Filter, Stride, Inside::hardswish, false, 0>(t, g, arguments, stream);
  } else if (p.activation == Activation::relu6) {
    start<End::project, T, Filter, Stride, Inside::relu, true, 0>(t, g, arguments, stream);
  } else {
    start<End::project, T, Filter, Stride, Inside::relu, false, 0>(t, g, arguments, stream);
  }
}

template <class T>
void launch_typed(const Plan& plan, const BlockProblem& p, const Pointers& pointers, Stream stream) {
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(p, t);
  const Arguments<T> a = arguments_of<T>(p, t, g, pointers);
  const Stream turn = pointers.packed_just_now ? stream.without_overlap() : stream;
  with_sizes(p, [&](auto filter, auto stride) {
    start_inside<T, decltype(filter)::value, decltype(stride)::value>(p, t, g, a, turn);
  });
}

template <class T>
void pack_typed(const Plan& plan, const BlockProblem& p, const BlockWeights& w, void* packed, Stream stream) {
  pack_chunks<T>(p, tiling_of(plan), w, packed, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const Pointers&, Stream);
template void pack_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                         Stream);

}  // namespace convx::inverted_residual::banded
#endif
