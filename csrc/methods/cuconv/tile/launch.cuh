// From a plan to a launch of the tile kernel, for one element type.
#pragma once
#include <cstdint>
#include <stdexcept>

#include "methods/cuconv/launch.h"
#include "methods/cuconv/tile/kernel.cuh"
#include "platform/gpu/overlap.h"

namespace convx::cuconv::tile {

template <class T>
Arguments<T> arguments_of(const Tiling& t, const Geometry& g, const Sweep& s, const Operands& operands) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  // Pieces of four elements are read by words of up to 16 bytes.
  constexpr uintptr_t kPieceBytes = sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16;
  const auto misaligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kPieceBytes;
  };
  Arguments<T> a{};
  a.source = static_cast<const T*>(operands.source);
  if (g.flat) {
    a.source_offset = static_cast<int64_t>(misaligned(a.source) / sizeof(T));
    a.source -= a.source_offset;
    a.source_end = a.source_offset + s.batch * s.all_source_channels() * s.source_plane();
  }
  a.weight = static_cast<const T*>(operands.weight);
  a.result = static_cast<T*>(operands.result);
  a.partial = static_cast<Accumulator<T>*>(operands.partial);
  a.results = s.results();
  a.groups = number(s.groups), a.channels = number(s.source_channels), a.filters = number(s.result_channels);
  a.source_height = number(s.source_height), a.source_width = number(s.source_width);
  a.source_plane = number(s.source_plane());
  a.result_height = number(s.result_height), a.result_width = number(s.result_width);
  a.result_plane = number(s.result_plane());
  a.filter_height = number(s.filter_height), a.filter_width = number(s.filter_width);
  a.stride_h = number(s.stride_h), a.stride_w = number(s.stride_w);
  a.dilation_h = number(s.dilation_h), a.dilation_w = number(s.dilation_w);
  a.top = number(s.top), a.left = number(s.left);
  a.filter_blocks = divide_by(g.filter_blocks);
  a.all_filter_blocks = divide_by(s.groups * g.filter_blocks);
  a.planes = divide_by(t.planes);
  a.tiles = divide_by(g.tiles_down * g.tiles_across);
  a.tiles_across = divide_by(g.tiles_across);
  a.planes_are_taps = t.planes_are_taps != 0;
  a.wide_weights = g.windows() == 1 && g.reduction % 4 == 0 && s.source_channels * s.taps() % 4 == 0 &&
                   misaligned(a.weight) == 0;
  a.warps = number(t.warps), a.chunk = number(t.chunk), a.chunks = number(g.chunks);
  a.stages = number(t.stages), a.rows = number(t.rows), a.columns = number(t.columns);
  a.windows_across = number(g.windows_across), a.windows = number(g.windows()), a.across = number(t.across);
  a.tile_width = number(t.across * t.pixels);
  a.row_step = number(g.row_step), a.column_step = number(g.column_step), a.residues = number(g.residues);
  a.residue_pitch = number(g.residue_pitch), a.pitch = number(g.pitch), a.positions = number(g.positions);
  a.channel_pitch = number(g.channel_pitch), a.reduction = number(g.reduction);
  a.weight_pitch = number(g.weight_pitch), a.stage = number(g.stage);
  a.table_words = number(g.table_bytes / 4), a.part = number(t.part);
  a.divide_values = divide_by(a.wide_weights ? g.reduction / 4 : g.reduction);
  a.bias = operands.bias<T>();
  a.finishing = operands.finishing<T>();
  return a;
}

template <class T, int Filters, int Pixels>
void launch_shape(const Tiling& t, const Geometry& g, const Arguments<T>& arguments, Stream stream) {
  with_lanes(t.lanes, [&](auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    auto kernel = g.flat ? tile_kernel<kLanes, T, Filters, Pixels, FlatFeed, false>
                         : tile_kernel<kLanes, T, Filters, Pixels, WindowFeed, false>;
    if constexpr (std::is_same<T, float>::value) {
      if (t.part > 0) {
        kernel = g.flat ? tile_kernel<kLanes, T, Filters, Pixels, FlatFeed, true>
                        : tile_kernel<kLanes, T, Filters, Pixels, WindowFeed, true>;
      }
    }
    launch_in_turn(kernel, "cuconv tile", Grid{static_cast<uint32_t>(g.blocks)},
                   static_cast<uint32_t>(t.warps * t.lanes), static_cast<uint32_t>(g.shared_bytes), stream,
                   arguments);
  });
}

template <class T>
void launch_typed(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream) {
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(sweep, t, sizeof(Accumulator<T>));
  const Arguments<T> arguments = arguments_of<T>(t, g, sweep, operands);
  if (t.filters == 2 && t.pixels == 7) return launch_shape<T, 2, 7>(t, g, arguments, stream);
  if (t.filters == 4 && t.pixels == 7) return launch_shape<T, 4, 7>(t, g, arguments, stream);
  if constexpr (std::is_same<T, float>::value) {
    if (t.filters == 4 && t.pixels == 14) return launch_shape<T, 4, 14>(t, g, arguments, stream);
    if (t.filters == 8 && t.pixels == 7) return launch_shape<T, 8, 7>(t, g, arguments, stream);
  }
  throw std::logic_error("convx: no cuconv tile for " + describe(plan));
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const Sweep&, const Operands&, Stream);

}  // namespace convx::cuconv::tile
