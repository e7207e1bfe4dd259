// How the GPU kernels share out a problem, for the planner and the launcher.
//
// A block owns block_channels() = lane_filters * tile.filters result channels of a tile of pixels. The lanes
// of a warp are lane_filters filter groups times slots() channel slots; the block's warps, and the blocks of
// a split, take the groups of slots() source channels in turn.
#pragma once
#include <algorithm>

#include "methods/hntmp/tiles.h"
#include "problem/device.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::hntmp {

// A 1x1 filter of stride 1 without padding may see its pixels as rows of any length; tiles want this one.
inline Sweep with_rows_of(Sweep s, int64_t width) {
  const int64_t pixels = s.result_plane();
  if (s.is_flat() && pixels % width == 0) {
    s.source_width = s.result_width = width;
    s.source_height = s.result_height = pixels / width;
  }
  return s;
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
