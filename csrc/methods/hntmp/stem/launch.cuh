// From a plan to a launch of the stem kernel, for one element type.
#pragma once
#include <stdexcept>

#include "methods/hntmp/hntmp.h"
#include "methods/hntmp/stem/kernel.cuh"
#include "methods/hntmp/stem/stem.h"
#include "platform/gpu/launch.h"

namespace convx::hntmp::stem {

template <class T>
Arguments<T> arguments_of(const ConvProblem& problem, const Sweep& s, const Tiling& t, const Geometry& g,
                          const Pointers& pointers) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const bool channels_last = problem.layout == Layout::nhwc;
  constexpr int64_t kCount = 16 / sizeof(T);
  Arguments<T> a{};
  a.source = static_cast<const T*>(pointers.input);
  a.weight = static_cast<const T*>(pointers.packed_weight);
  a.result = static_cast<T*>(pointers.result);
  a.bias = initial_bias<T>(problem, pointers);
  a.source_elements = problem.input_elements();
  a.result_plane = s.result_plane();
  a.channels = number(s.source_channels), a.result_channels = number(s.result_channels);
  a.source_height = number(s.source_height), a.source_width = number(s.source_width);
  a.result_height = number(s.result_height), a.result_width = number(s.result_width);
  a.top = number(s.top), a.left = number(s.left);
  a.stride_h = number(s.stride_h), a.stride_w = number(s.stride_w);
  a.dilation_h = number(s.dilation_h), a.dilation_w = number(s.dilation_w);
  a.block_channels = number(t.block_channels), a.taps = number(g.taps);
  a.warps_down = number(t.warps_down), a.filter_warps = number(t.filter_warps);
  a.window_height = number(g.window_height);
  a.run = number(g.window_width * (channels_last ? s.source_channels : 1));
  a.pieces = number(a.run / kCount + 2);
  a.residue_pitch = number(g.residue_pitch), a.pitch = number(g.pitch);
  a.channel_pitch = number(g.channel_pitch);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.channel_blocks = divide_by(g.channel_blocks);
  a.by_pieces = divide_by(a.pieces), a.by_height = divide_by(g.window_height);
  a.by_channels = divide_by(s.source_channels), a.by_stride = divide_by(s.stride_w);
  a.by_filter = divide_by(s.taps()), a.by_filter_width = divide_by(s.filter_width);
  a.finishing = finishing_of<T>(problem, pointers);
  return a;
}

template <int Lanes, class T, int At>
void start(bool channels_last, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  constexpr Shape kShape = kShapes[At];
  Grid grid;
  grid.x = static_cast<uint32_t>(g.blocks);
  const auto kernel = channels_last ? stem_kernel<Lanes, T, kShape.lanes_across, kShape.pixels, true>
                                    : stem_kernel<Lanes, T, kShape.lanes_across, kShape.pixels, false>;
  launch_in_turn(kernel, "hntmp stem", grid, static_cast<uint32_t>(g.threads),
                 static_cast<uint32_t>(g.shared_bytes), stream, arguments);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep s = sweep_of(problem);
  const Tiling t = tiling_of(plan, problem);
  const Geometry g = geometry_of(s, t);
  const Arguments<T> a = arguments_of<T>(problem, s, t, g, pointers);
  const bool channels_last = problem.layout == Layout::nhwc;
  const Stream turn = pointers.packed_just_now ? stream.without_overlap() : stream;
  static_assert(sizeof(kShapes) / sizeof(Shape) == 3, "each has its branch");
  with_lanes(t.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    const auto is = [&](const Shape& shape) {
      return shape.lanes_across == t.lanes_across && shape.pixels == t.pixels;
    };
    if (is(kShapes[0])) {
      start<kLanes, T, 0>(channels_last, g, a, turn);
    } else if (is(kShapes[1])) {
      start<kLanes, T, 1>(channels_last, g, a, turn);
    } else {
      start<kLanes, T, 2>(channels_last, g, a, turn);
    }
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::hntmp::stem
