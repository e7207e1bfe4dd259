// From a plan to a launch of the stem kernel on matrix units, for one element type.
#pragma once
#include "methods/hntmp/stem_tensor/kernel.cuh"
#include "methods/hntmp/stem_tensor/stem_tensor.h"
#include "platform/gpu/launch.h"

namespace convx::hntmp::stem_tensor {

template <class T>
Arguments<T> arguments_of(const ConvProblem& problem, const Sweep& s, const Tiling& t, const Geometry& g,
                          const Pointers& pointers) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T> a{};
  a.source = static_cast<const T*>(pointers.input);
  a.weight = static_cast<const T*>(pointers.packed_weight);
  a.bias = initial_bias<T>(problem, pointers);
  a.result = static_cast<T*>(pointers.result);
  a.activation = problem.epilogue.activation;
  a.channels = number(s.source_channels), a.source_height = number(s.source_height);
  a.source_line = number(s.source_width * s.source_channels);
  a.result_channels = number(s.result_channels);
  a.result_height = number(s.result_height), a.result_width = number(s.result_width);
  a.top = number(s.top), a.left = number(s.left);
  a.stride_h = number(s.stride_h), a.dilation_h = number(s.dilation_h);
  a.pixel_step = number(s.stride_w * s.source_channels);
  a.filter_height = number(s.filter_height), a.filter_width = number(s.filter_width);
  a.taps = number(s.taps() * s.source_channels);
  a.tile_height = number(t.tile_height), a.tile_width = number(t.tile_width);
  a.fragments = number(t.tile_height * g.row_fragments);
  a.runs = runs_of(s.filter_height, g.runs), a.steps = number(g.runs.steps);
  a.window_height = number(g.window_height), a.pitch = number(g.pitch);
  a.table_at = number(g.table_at), a.window_at = number(g.window_at);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.channel_blocks = divide_by(g.channel_blocks), a.by_pieces = divide_by(g.pieces);
  a.by_row_fragments = divide_by(g.row_fragments);
  a.by_channels = divide_by(s.source_channels);
  return a;
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep s = sweep_of(problem);
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(s, t);
  const Arguments<T> arguments = arguments_of<T>(problem, s, t, g, pointers);
  const Stream turn = pointers.packed_just_now ? stream.without_overlap() : stream;
  with_lanes(t.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    Grid grid;
    grid.x = static_cast<uint32_t>(g.blocks);
    const auto kernel =
        t.block_channels == 32 ? stem_tensor_kernel<kLanes, 2, T> : stem_tensor_kernel<kLanes, 4, T>;
    launch_in_turn(kernel, "hntmp stem_tensor", grid, static_cast<uint32_t>(t.warps * kLanes),
                   static_cast<uint32_t>(g.shared_bytes), turn, arguments);
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::hntmp::stem_tensor
