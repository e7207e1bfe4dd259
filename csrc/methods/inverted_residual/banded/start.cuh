// Launches of the banded kernel and of its packing, for one element type and what becomes of filtered chunks.
#pragma once
#include <stdexcept>

#include "methods/inverted_residual/banded/kernel.cuh"
#include "methods/inverted_residual/banded/pack.cuh"
#include "methods/inverted_residual/launching.cuh"
#include "platform/gpu/launch.h"

namespace convx::inverted_residual::banded {

template <End kEnd, class T, int Filter, int Stride, Inside kInside, bool Bounded, int At, bool Patches>
void start_form(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  constexpr int kLanes = 32;
  Grid grid;
  grid.x = static_cast<uint32_t>(g.blocks);
  // Blocks that share a tile exchange sums of their products.
  if (kEnd == End::project) grid.cluster = static_cast<uint32_t>(t.ranks);
  launch_in_turn(banded_kernel<kLanes, T, FormOf<kEnd, Filter, Stride, At, kInside, Bounded, Patches> >,
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

template <End kEnd, class T, int Filter, int Stride, Inside kInside, bool Bounded, int At>
void start(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  if (t.shape != At) {
    if constexpr (At + 1 < kShapeCount)
      return start<kEnd, T, Filter, Stride, kInside, Bounded, At + 1>(t, g, arguments, stream);
  } else if constexpr (has_end(kEnd, Filter, Stride, At)) {
    if constexpr (has_patches(Filter, Stride, At)) {
      if (arguments.patches.runs.taps > 1)
        return start_form<kEnd, T, Filter, Stride, kInside, Bounded, At, true>(t, g, arguments, stream);
    }
    return start_form<kEnd, T, Filter, Stride, kInside, Bounded, At, false>(t, g, arguments, stream);
  }
  throw std::logic_error("convx: no such shape of inverted_residual/banded");
}

template <class T>
void pack_chunks(const BlockProblem& p, const Tiling& t, const BlockWeights& w, void* packed, Stream stream) {
  const Geometry g = geometry_of(p, t);
  const auto a = pack_arguments_of<T>(p, g, g.chunk, kShapes[p.stride - 1][t.shape].depth_steps, w, packed);
  const PatchDepth depth = {runs_of(p.expand_filter, patch_geometry_of(p, g.window_rows).runs),
                            number(p.channels)};
  Grid grid;
  grid.x = static_cast<uint32_t>(g.chunks + 1);
  launch_kernel(pack_banded_kernel<T>, "inverted_residual banded's packing", grid, kPackThreads, 0, stream, a,
                depth, end_of(p), number(p.filter), number(g.depthwise_bias_at), number(g.non_finite_at));
}

}  // namespace convx::inverted_residual::banded
