// From a plan to launches, for one element type.
#pragma once
#include <stdexcept>

#include "methods/inverted_residual/banded/banded.h"
#include "platform/gpu/launch.h"

#if defined(CONVX_HIP)
// No AMD GPU is ever given such a plan (supports in plan.cpp).
namespace convx::inverted_residual::banded {

template <class T>
void launch_typed(const Plan& plan, const BlockProblem&, const Pointers&, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}

template <class T>
void pack_typed(const Plan& plan, const BlockProblem&, const BlockWeights&, void*, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}

}  // namespace convx::inverted_residual::banded
#else
#include "methods/inverted_residual/banded/kernel.cuh"
#include "methods/inverted_residual/banded/pack.cuh"
#include "methods/inverted_residual/launching.cuh"

namespace convx::inverted_residual::banded {

template <class T, int Filter, int Stride, Inside kInside, bool Bounded, int At, bool Patches>
void start_form(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  constexpr int kLanes = 32;
  Grid grid;
  grid.x = static_cast<uint32_t>(g.blocks), grid.cluster = static_cast<uint32_t>(t.ranks);
  launch_in_turn(banded_kernel<kLanes, T, FormOf<Filter, Stride, At, kInside, Bounded, Patches> >,
                 "inverted_residual banded", grid, static_cast<uint32_t>(g.warps * kLanes),
                 static_cast<uint32_t>(g.shared_bytes), stream, arguments);
}

template <class T>
Arguments<T> arguments_of(const BlockProblem& p, const Tiling& t, const Geometry& g,
                          const Pointers& pointers) {
  auto a = shared_arguments<Arguments<T> >(p, t, g, pointers);
  a.warps_down = number(g.warps_down);
  a.depthwise_bias_at = number(g.depthwise_bias_at), a.non_finite_at = number(g.non_finite_at);
  if (p.expand_filter > 1) {
    const PatchGeometry patches = patch_geometry_of(p, g.window_rows);
    PatchArguments& of = a.patches;
    of.runs = runs_of(p.expand_filter, patches.runs);
    of.stride = number(p.expand_stride), of.channels = number(p.channels);
    of.height = number(p.height), of.line = number(p.width * p.channels);
    of.rows = number(patches.rows), of.pitch = number(patches.pitch),
    of.by_pieces = divide_by(patches.pieces);
  }
  return a;
}

template <class T, int Filter, int Stride, Inside kInside, bool Bounded, int At>
void start(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  if (t.shape != At) {
    if constexpr (At + 1 < kShapeCount)
      return start<T, Filter, Stride, kInside, Bounded, At + 1>(t, g, arguments, stream);
  } else if constexpr (has_filter(kShapes[Stride - 1][At], Filter)) {
    if constexpr (has_patches(Filter, Stride, At)) {
      if (arguments.patches.runs.taps > 1)
        return start_form<T, Filter, Stride, kInside, Bounded, At, true>(t, g, arguments, stream);
    }
    return start_form<T, Filter, Stride, kInside, Bounded, At, false>(t, g, arguments, stream);
  }
  throw std::logic_error("convx: no such shape of inverted_residual/banded");
}

template <class T, int Filter, int Stride>
void start_inside(const BlockProblem& p, const Tiling& t, const Geometry& g, const Arguments<T>& arguments,
                  Stream stream) {
  if (p.activation == Activation::hardswish) {
    start<T, Filter, Stride, Inside::hardswish, false, 0>(t, g, arguments, stream);
  } else if (p.activation == Activation::relu6) {
    start<T, Filter, Stride, Inside::relu, true, 0>(t, g, arguments, stream);
  } else {
    start<T, Filter, Stride, Inside::relu, false, 0>(t, g, arguments, stream);
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
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(p, t);
  const auto a = pack_arguments_of<T>(p, g, g.chunk, kShapes[p.stride - 1][t.shape].depth_steps, w, packed);
  const PatchDepth depth = {runs_of(p.expand_filter, patch_geometry_of(p, g.window_rows).runs),
                            number(p.channels)};
  Grid grid;
  grid.x = static_cast<uint32_t>(g.chunks + 1);
  launch_kernel(pack_banded_kernel<T>, "inverted_residual banded's packing", grid, kPackThreads, 0, stream, a,
                depth, number(p.filter), number(g.depthwise_bias_at), number(g.non_finite_at));
}

}  // namespace convx::inverted_residual::banded
#endif

namespace convx::inverted_residual::banded {

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const Pointers&, Stream);
template void pack_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                         Stream);

}  // namespace convx::inverted_residual::banded
