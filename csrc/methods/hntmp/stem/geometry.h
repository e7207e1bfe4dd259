// How the stem kernel shares out a network's first convolution, for the planner and the launcher.
//
// Where the input has a few channels, as images do, all of them fit into shared memory at once: a block
// brings the window of its tile and all taps of its filters there, and each thread keeps kFilters filters of
// some pixels in registers. A lane's pixels lie lanes_across apart, so that the lanes of a row read
// neighbours.
#pragma once
#include <algorithm>

#include "problem/device.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::hntmp::stem {

constexpr int kFilters = 8;  // of a thread
constexpr int kMostThreads = 256;
constexpr int64_t kMostChannels = 4, kMostTaps = 512, kMostBlockChannels = 64;

// Tiles of 32, 56 and 112 columns: those of CIFAR's and ImageNet's networks.
struct Shape {
  int lanes_across, pixels;
};
constexpr Shape kShapes[] = {{8, 4}, {8, 7}, {16, 7}};

struct Tiling {
  int64_t lanes, lanes_across, pixels;
  bool channels_last;
  int64_t warps_down;    // of a block, below one another
  int64_t filter_warps;  // of a block, on the same pixels
  int64_t block_channels;

  // A warp's lanes that are not side by side.
  int64_t rows() const { return channels_last ? 1 : lanes / lanes_across; }
  int64_t filters_together() const { return kFilters * (channels_last ? lanes / lanes_across : 1); }
};

struct Geometry {
  int64_t tile_height, tile_width, tiles_down, tiles_across, channel_blocks, blocks, threads;
  // Of the window, in elements. A row in shared memory has its columns dealt out by their residue modulo the
  // stride, so that neighbouring pixels always read neighbours.
  int64_t window_height, window_width, residue_pitch, pitch, channel_pitch;
  int64_t taps;  // of all channels
  int64_t shared_bytes;
};

// Of a row of the window, so that lanes below one another read other banks.
inline int64_t padded_pitch(int64_t pitch, int64_t stride_h, int64_t lanes_across) {
  for (int64_t more = 0; more < 32; ++more) {
    const int64_t step = (pitch + more) * stride_h % 32;
    if (step == lanes_across || step == 32 - lanes_across) return pitch + more;
  }
  return pitch;
}

inline Geometry geometry_of(const Sweep& s, const Tiling& t) {
  Geometry g{};
  g.tile_height = t.warps_down * t.rows();
  g.tile_width = t.lanes_across * t.pixels;
  g.tiles_down = divide_up(s.result_height, g.tile_height);
  g.tiles_across = divide_up(s.result_width, g.tile_width);
  g.channel_blocks = divide_up(s.result_channels, t.block_channels);
  g.blocks = s.batch * g.channel_blocks * g.tiles_down * g.tiles_across;
  g.threads = t.lanes * t.warps_down * t.filter_warps;
  g.window_height = (g.tile_height - 1) * s.stride_h + (s.filter_height - 1) * s.dilation_h + 1;
  g.window_width = (g.tile_width - 1) * s.stride_w + (s.filter_width - 1) * s.dilation_w + 1;
  g.residue_pitch = divide_up(g.window_width, s.stride_w);
  g.pitch = padded_pitch(g.residue_pitch * s.stride_w, s.stride_h, t.lanes_across);
  g.channel_pitch = g.window_height * g.pitch;
  g.taps = s.source_channels * s.taps();
  // Filters by tap, then where each tap lies in the window, then the window.
  g.shared_bytes =
      4 * (g.taps * t.block_channels + round_up(g.taps + 1, 4) + s.source_channels * g.channel_pitch);
  return g;
}

}  // namespace convx::hntmp::stem
