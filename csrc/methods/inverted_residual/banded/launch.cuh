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
#include "methods/inverted_residual/sizes.cuh"

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
  Arguments<T> a{};
  a.source = static_cast<const T*>(pointers.input);
  a.filters = static_cast<const unsigned char*>(pointers.packed_weight);
  a.bias = reinterpret_cast<const float*>(a.filters + g.chunks * g.chunk_bytes);
  a.result = static_cast<T*>(pointers.result);
  a.has_residual = p.has_residual;
  a.activation = p.activation, a.output_activation = p.output_activation;
  a.channels = number(p.channels);
  a.height = number(p.expanded_height), a.width = number(p.expanded_width);
  a.out_height = number(p.out_height), a.out_width = number(p.out_width);
  a.out_channels = number(p.out_channels), a.out_pairs = number(g.out_pairs);
  a.by_ranks = divide_by(t.ranks);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.tile_height = number(t.tile_height);
  a.expanded_channels = number(p.expanded_channels), a.chunks = number(g.chunks);
  a.rank_chunks = number(g.rank_chunks), a.exchange_at = number(g.exchange_at);
  a.result_tiles = number(g.result_tiles), a.warps_down = number(g.warps_down);
  a.expand_bias_at = number(g.expand_bias_at), a.depthwise_at = number(g.depthwise_at);
  a.depthwise_bias_at = number(g.depthwise_bias_at), a.project_at = number(g.project_at);
  a.non_finite_at = number(g.non_finite_at), a.chunk_bytes = number(g.chunk_bytes);
  if (p.expand_filter > 1) {
    const PatchGeometry patches = patch_geometry_of(p, g.window_rows);
    PatchArguments& of = a.patches;
    of.taps = number(p.expand_filter), of.stride = number(p.expand_stride), of.channels = number(p.channels);
    of.height = number(p.height), of.line = number(p.width * p.channels);
    of.lead = number(patches.lead), of.run = number(patches.run), of.rows = number(patches.rows);
    of.pitch = number(patches.pitch), of.by_pieces = divide_by(patches.pieces);
    of.by_run_pairs = divide_by(patches.run_pairs);
  }
  a.ring_at = number(g.ring_at), a.ring = number(g.ring), a.ahead = number(t.ahead);
  a.barriers_at = number(g.barriers_at);
  return a;
}

template <class T, int Filter, int Stride, Inside kInside, bool Bounded, int At>
void start(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  if (t.shape != At) {
    if constexpr (At + 1 < kShapeCount)
      return start<T, Filter, Stride, kInside, Bounded, At + 1>(t, g, arguments, stream);
  } else if constexpr (has_filter(kShapes[Stride - 1][At], Filter)) {
    if constexpr (has_patches(Filter, Stride, At)) {
      if (arguments.patches.taps > 1)
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
  PackArguments<T> a = weights_of<T>(p, w, packed);
  a.chunk = number(g.chunk), a.chunks = number(g.chunks);
  a.depth_steps = kShapes[p.stride - 1][t.shape].depth_steps;
  a.pairs = number(g.chunk / kMatrix), a.out_pairs = number(g.out_pairs);
  a.expand_bias_at = number(g.expand_bias_at), a.depthwise_at = number(g.depthwise_at);
  a.project_at = number(g.project_at), a.chunk_bytes = number(g.chunk_bytes);
  const PatchGeometry patches = patch_geometry_of(p, g.window_rows);
  const PatchDepth depth = {number(p.expand_filter), number(p.channels), number(patches.lead),
                            number(patches.run), number(patches.run_pairs)};
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
