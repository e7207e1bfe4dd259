// How the stem kernel on matrix units shares out a network's first convolution in channels_last, for the
// planner and the launcher. It reads runs of values (methods/runs.h).
#pragma once
#include <algorithm>

#include "methods/matrix/precision.h"
#include "methods/runs.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::hntmp::stem_tensor {

constexpr int64_t kRowFilters = 16;
// Of pixels that a warp has at a time: as many sums for 32 and for 64 filters.
constexpr int fragments_of(int64_t block_channels) {
  return static_cast<int>(128 / block_channels);
}
constexpr int64_t kMostChannels = 4, kMostWarps = 8;

struct Tiling {
  int64_t lanes;
  int64_t tile_height, tile_width;  // results; whole fragments across
  int64_t warps;
  int64_t block_channels;  // 32 or 64
};

struct Geometry {
  int64_t fragment_columns, row_fragments;  // of pixels: of one, and in a row of the tile
  int64_t tiles_down, tiles_across, channel_blocks, blocks;
  RunGeometry runs;
  int64_t window_height, pieces, pitch;       // of the window's rows, the last in bytes
  int64_t table_at, window_at, shared_bytes;  // behind the filters: where pairs lie; then the window
};

inline Geometry geometry_of(const Sweep& s, const Tiling& t) {
  Geometry g{};
  g.fragment_columns = t.lanes / 4;
  g.row_fragments = t.tile_width / g.fragment_columns;
  g.tiles_down = divide_up(s.result_height, t.tile_height);
  g.tiles_across = divide_up(s.result_width, t.tile_width);
  g.channel_blocks = divide_up(s.result_channels, t.block_channels);
  g.blocks = s.batch * g.channel_blocks * g.tiles_down * g.tiles_across;
  g.runs = run_geometry_of(s.filter_height, s.filter_width, s.source_channels, s.left);
  g.window_height = (t.tile_height - 1) * s.stride_h + (s.filter_height - 1) * s.dilation_h + 1;
  const int64_t columns = (t.tile_width - 1) * s.stride_w + s.filter_width;
  g.pieces = divide_up(kPieceValues - 1 + columns * s.source_channels + 1, kPieceValues);
  g.pitch = g.pieces * kPieceValues * 2;
  g.table_at = t.block_channels * g.runs.steps * kStepPairs * 4;
  g.window_at = g.table_at + g.runs.steps * kStepPairs * 8;
  g.shared_bytes = g.window_at + g.window_height * g.pitch;
  return g;
}

}  // namespace convx::hntmp::stem_tensor
