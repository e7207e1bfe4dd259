// From a plan to a launch of the kernels, for one element type.
#pragma once
#include <stdexcept>
#include <utility>

#include "methods/hntmp/geometry.h"
#include "methods/hntmp/hntmp.h"
#include "methods/hntmp/kernel.cuh"
#include "platform/gpu/launch.h"
#include "platform/gpu/overlap.h"

namespace convx::hntmp {

template <class T>
Arguments<T, Accumulator<T>> arguments_of(const Plan& plan, const ConvProblem& problem, const Sweep& s,
                                          const Geometry& g, const Pointers& pointers) {
  const bool forward = problem.operation == Operation::forward;
  const auto whole = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T, Accumulator<T>> a{};
  a.source = static_cast<const T*>(forward ? pointers.input : pointers.output_grad);
  a.weight = static_cast<const T*>(pointers.packed_weight);
  a.result = static_cast<T*>(pointers.result);
  a.partial = plan["splits"] > 1 ? static_cast<Accumulator<T>*>(pointers.workspace) : nullptr;
  a.source_plane = s.source_plane();
  a.result_plane = s.result_plane();
  a.results = s.results();
  a.source_channels = whole(s.source_channels), a.result_channels = whole(s.result_channels);
  a.source_height = whole(s.source_height), a.source_width = whole(s.source_width);
  a.result_height = whole(s.result_height), a.result_width = whole(s.result_width);
  a.top = whole(s.top), a.left = whole(s.left);
  a.filter_height = whole(s.filter_height), a.filter_width = whole(s.filter_width);
  a.stride_h = whole(s.stride_h), a.stride_w = whole(s.stride_w);
  a.dilation_h = whole(s.dilation_h), a.dilation_w = whole(s.dilation_w);
  a.slots = whole(g.slots());
  while (1 << a.slots_log2 < a.slots) ++a.slots_log2;
  a.block_channels = whole(g.block_channels());
  a.weight_elements = whole(s.taps() * g.block_channels());
  a.channel_stride = whole(g.channel_stride), a.weight_offset = whole(g.weight_offset);
  a.stage_bytes = whole(g.stage_bytes);
  a.window_positions = whole(g.window_height * g.window_width);
  a.window_width = divide_by(g.window_width);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.splits = divide_by(g.splits), a.channel_blocks = divide_by(g.channel_blocks);
  a.groups = divide_by(s.groups);
  a.bias = initial_bias<T>(problem, pointers);
  a.finishing = finishing_of<T>(problem, pointers);
  return a;
}

template <class T, bool ChannelsLast, int TileAt>
void start(const Geometry& g, const Arguments<T, Accumulator<T>>& arguments, Stream stream) {
  Grid grid;
  grid.x = static_cast<uint32_t>(g.blocks);
  with_lanes(g.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    launch_in_turn(hntmp_kernel<kLanes, T, ChannelsLast, TileAt>, "hntmp", grid,
                   static_cast<uint32_t>(g.warps * kLanes), static_cast<uint32_t>(g.shared_bytes), stream,
                   arguments);
  });
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) {
    return DType::float64;
  } else if constexpr (std::is_same_v<T, float16>) {
    return DType::float16;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return DType::bfloat16;
  } else {
    return DType::float32;
  }
}

// start<T, ChannelsLast, index>() for the tiles that are compiled for T.
template <class T, bool ChannelsLast, int... Tiles>
void start_tile(int index, const Geometry& g, const Arguments<T, Accumulator<T>>& arguments, Stream stream,
                std::integer_sequence<int, Tiles...>) {
  const auto try_one = [&](auto tile) {
    if constexpr (has_dtype(decltype(tile)::value, dtype_of<T>())) {
      if (index == decltype(tile)::value) {
        start<T, ChannelsLast, decltype(tile)::value>(g, arguments, stream);
      }
    }
  };
  (try_one(std::integral_constant<int, Tiles>()), ...);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep sweep = gpu_sweep_of(problem);
  const Geometry g = geometry_of(sweep, plan.kernel, problem.dtype, plan["lanes"], plan["lane_filters"],
                                 plan["warps"], plan["splits"]);
  const auto a = arguments_of<T>(plan, problem, sweep, g, pointers);
  const bool channels_last = problem.layout == Layout::nhwc;
  const Stream turn = pointers.packed_just_now ? stream.without_overlap() : stream;
  constexpr auto kAll = std::make_integer_sequence<int, kTiles>();
  if (channels_last) {
    start_tile<T, true>(plan.kernel, g, a, turn, kAll);
  } else {
    start_tile<T, false>(plan.kernel, g, a, turn, kAll);
  }
  if (a.partial == nullptr) return;
  Grid grid;
  grid.x = static_cast<uint32_t>(divide_up(a.results, kFinishThreads));
  launch_in_turn(hntmp_finish_kernel<T>, "hntmp finish", grid, kFinishThreads, 0, stream, a.partial, a.bias,
                 a.result, a.results, static_cast<int>(g.splits),
                 divide_by(channels_last ? 1 : a.result_plane), divide_by(sweep.all_result_channels()),
                 a.finishing);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::hntmp
