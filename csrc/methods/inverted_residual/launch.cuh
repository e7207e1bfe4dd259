// From a plan to launches, for one element type.
#pragma once
#include <stdexcept>

#include "methods/inverted_residual/inverted_residual.h"
#include "platform/gpu/launch.h"

#if !defined(CONVX_HIP)  // no AMD GPU is ever given such a plan: launch.cu
#include "methods/inverted_residual/kernel.cuh"
#include "methods/inverted_residual/launching.cuh"
#include "methods/inverted_residual/pack.cuh"

namespace convx::inverted_residual {

template <class T>
Arguments<T> arguments_of(const BlockProblem& p, const Tiling& t, const Geometry& g,
                          const Pointers& pointers) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int64_t strips_across = t.tile_width / shape.strip_columns;
  auto a = shared_arguments<Arguments<T> >(p, t, g, pointers);
  a.depth_steps = number(g.depth_steps), a.chunk_steps = number(g.chunk_steps);
  a.non_finite_at = number(g.non_finite_at);
  const bool is_nchw = p.layout == Layout::nchw;
  a.taps = number(p.expand_filter), a.patch_stride = number(p.expand_stride);
  a.source_height = number(p.height), a.source_width = number(p.width);
  a.pixel_step = is_nchw ? 1 : number(p.channels), a.row_step = number(p.width) * a.pixel_step;
  const int channel_step = is_nchw ? number(p.height * p.width) : 1, taps = a.taps * a.taps;
  for (int i = 0; a.taps > 1 && i < kMostOfPatch; ++i) {
    const int row = i % taps / a.taps, column = i % a.taps;
    a.patch[i] = {static_cast<int16_t>(row), static_cast<int16_t>(column),
                  row * a.row_step + column * a.pixel_step + i / taps * channel_step};
    if (i >= p.expand_depth()) a.patch[i] = a.patch[0];  // what is read there is not taken
  }
  a.tile_width = number(t.tile_width), a.window_width = number(g.window_width);
  a.by_tile_width = divide_by(t.tile_width), a.by_strips_across = divide_by(strips_across);
  a.pieces = number(2 * g.depth_steps), a.by_pieces = divide_by(a.pieces);
  a.strips = number(t.tile_height / strip_rows(shape, number(p.filter)) * strips_across);
  a.chunk = number(t.chunk), a.by_pairs = divide_by(t.chunk / kMatrix);
  a.by_channel_pairs = divide_by(t.chunk / 2), a.strip_step = number(t.warps() * 32 / (t.chunk / 2));
  a.by_project_across = divide_by(g.project_across), a.splits = number(g.splits);
  a.window_tiles = number(g.window_tiles), a.warps_down = number(t.warps_down);
  a.source_pitch = number(g.source_pitch), a.window_pitch = number(g.window_pitch);
  a.filtered_pitch = number(g.filtered_pitch);
  // One chunk needs no second buffer.
  a.window_at = number(g.window_at), a.window_step = g.rank_chunks > 1 ? number(g.window_bytes) : 0;
  a.windows_bytes = number(g.filtered_at - g.window_at);
  a.filtered_at = number(g.filtered_at), a.filtered_step = g.rank_chunks > 1 ? number(g.filtered_bytes) : 0;
  a.places_at = number(g.places_at);
  return a;
}

template <class T, int Filter, int Stride, Inside kInside, int At>
void start(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  if (t.shape != At) {
    if constexpr (At + 1 < kShapeCount)
      return start<T, Filter, Stride, kInside, At + 1>(t, g, arguments, stream);
  } else if constexpr (sizeof(T) == 2 || kShapes[Stride - 1][At].takes_float) {
    constexpr int kLanes = 32;
    Grid grid;
    grid.x = static_cast<uint32_t>(g.blocks), grid.cluster = static_cast<uint32_t>(t.ranks);
    return launch_in_turn(block_kernel<kLanes, T, FormOf<Filter, Stride, At, kInside> >, "inverted_residual",
                          grid, static_cast<uint32_t>(t.warps() * kLanes),
                          static_cast<uint32_t>(g.shared_bytes), stream, arguments);
  }
  throw std::logic_error("convx: no such shape of inverted_residual");
}

template <class T, int Filter, int Stride>
void start_inside(const BlockProblem& p, const Tiling& t, const Geometry& g, const Arguments<T>& arguments,
                  Stream stream) {
  if (p.activation == Activation::hardswish) {
    start<T, Filter, Stride, Inside::hardswish, 0>(t, g, arguments, stream);
  } else {
    start<T, Filter, Stride, Inside::relu, 0>(t, g, arguments, stream);
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
  const auto a = pack_arguments_of<T>(p, g, t.chunk, g.depth_steps, w, packed);
  Grid grid;
  grid.x = static_cast<uint32_t>(g.chunks + 1);
  launch_kernel(pack_kernel<T>, "inverted_residual's packing", grid, kPackThreads, 0, stream, a);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const Pointers&, Stream);
template void pack_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                         Stream);

}  // namespace convx::inverted_residual
#endif
