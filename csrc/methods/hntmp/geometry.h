// How the GPU kernels share out a problem, for the planner and the launcher.
//
// A block owns block_channels() = lane_filters * tile.filters result channels of a tile of pixels. The lanes
// of a warp are lane_filters filter groups times slots() channel slots; the block's warps, and the blocks of
// a split, take the groups of slots() source channels in turn.
#pragma once
#include <algorithm>

#include "methods/hntmp/tiles.h"
#include "problem/device.h"

namespace convx::hntmp {

// The sweep of a forward problem, or of an input gradient of stride 1: a forward sweep of flipped filters
// over the output gradient. Channels are those of a group. The top and left padding may be negative: a crop.
struct Sweep {
  int64_t batch, groups, source_channels, result_channels;
  int64_t source_height, source_width, result_height, result_width;
  int64_t top, left, filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  int64_t taps() const { return filter_height * filter_width; }
};

inline Sweep sweep_of(const ConvProblem& p) {
  Sweep s{};
  s.batch = p.batch, s.groups = p.groups;
  s.filter_height = p.filter_height, s.filter_width = p.filter_width;
  s.stride_h = p.stride_h, s.stride_w = p.stride_w;
  s.dilation_h = p.dilation_h, s.dilation_w = p.dilation_w;
  if (p.operation == Operation::input_grad) {
    s.source_channels = p.out_channels_per_group(), s.result_channels = p.in_channels_per_group();
    s.source_height = p.out_height, s.source_width = p.out_width;
    s.result_height = p.in_height, s.result_width = p.in_width;
    s.top = (p.filter_height - 1) * p.dilation_h - p.padding_top;
    s.left = (p.filter_width - 1) * p.dilation_w - p.padding_left;
    return s;
  }
  s.source_channels = p.in_channels_per_group(), s.result_channels = p.out_channels_per_group();
  s.source_height = p.in_height, s.source_width = p.in_width;
  s.result_height = p.out_height, s.result_width = p.out_width;
  s.top = p.padding_top, s.left = p.padding_left;
  return s;
}

// A 1x1 filter of stride 1 without padding may see its pixels as rows of any length; tiles want this one.
inline Sweep with_rows_of(Sweep s, int64_t width) {
  const int64_t pixels = s.result_height * s.result_width;
  const bool pointwise = s.taps() == 1 && s.stride_h == 1 && s.stride_w == 1 && s.top == 0 && s.left == 0 &&
                         s.source_height == s.result_height && s.source_width == s.result_width;
  if (pointwise && pixels % width == 0) {
    s.source_width = s.result_width = width;
    s.source_height = s.result_height = pixels / width;
  }
  return s;
}

constexpr int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

// As the GPU kernels see it.
inline Sweep gpu_sweep_of(const ConvProblem& problem) {
  return with_rows_of(sweep_of(problem), 7);
}

struct Geometry {
  Tile tile;
  int64_t lanes, lane_filters, warps, splits;
  int64_t window_height, window_width;  // source elements of a tile
  int64_t tiles_down, tiles_across, channel_blocks, channel_groups, blocks;
  // Shared memory: of a channel in staged elements, of a stage in bytes.
  int64_t channel_stride, weight_offset, stage_bytes, shared_bytes;

  int64_t slots() const { return lanes / lane_filters; }
  int64_t block_channels() const { return lane_filters * tile.filters; }
};

constexpr int kMostThreads = 256;  // of a block: more would leave a thread fewer registers than it needs

inline Geometry geometry_of(const Sweep& s, int tile_index, DType dtype, int64_t lanes, int64_t lane_filters,
                            int64_t warps, int64_t splits) {
  Geometry g{};
  g.tile = tile_of(tile_index);
  g.lanes = lanes, g.lane_filters = lane_filters, g.warps = warps, g.splits = splits;
  const Tile& tile = g.tile;
  g.window_height = (tile.height - 1) * s.stride_h + (s.filter_height - 1) * s.dilation_h + 1;
  const int64_t element_bytes = element_size(dtype), sum_bytes = dtype == DType::float64 ? 8 : 4;
  g.window_width = tile.staged_columns(
      (tile.width - 1) * s.stride_w + (s.filter_width - 1) * s.dilation_w + 1, element_bytes);
  if (tile.staging == Staging::image) g.window_height = tile.height;
  g.tiles_down = divide_up(s.result_height, tile.height);
  g.tiles_across = divide_up(s.result_width, tile.width);
  g.channel_blocks = divide_up(s.result_channels, g.block_channels());
  g.channel_groups = divide_up(s.source_channels, g.slots());
  g.blocks = s.batch * s.groups * g.channel_blocks * splits * g.tiles_down * g.tiles_across;
  // Lanes of different slots read at this stride: an odd number of words meets no bank conflict, and neither
  // do 126 words, nor 49 elements of 16 bits.
  const int64_t positions = g.window_height * g.window_width;
  g.channel_stride = tile.pairs(element_bytes) ? 2 * (positions / 2 | 1) : positions | 1;
  const int64_t staged_bytes = tile.whole_filter() ? element_bytes : sum_bytes;
  g.weight_offset = divide_up(g.slots() * g.channel_stride * staged_bytes, 16) * 16;
  g.stage_bytes = g.weight_offset + divide_up(lanes * tile.filters * s.taps() * element_bytes, 16) * 16;
  // The warps' sums take the place of their rings.
  g.shared_bytes =
      std::max(warps * tile.stages * g.stage_bytes, warps * g.block_channels() * tile.pixels() * sum_bytes);
  return g;
}

}  // namespace convx::hntmp
