// How the paper's forms share out a problem, for the planner and the launcher: a block of 64 threads has a
// tile of pixels and some output channels. In HNTMP a thread has one of the channels and all pixels, in the
// direct convolution one of the pixels and all channels.
#pragma once
#include <cstdint>

#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::hntmp::forms {

constexpr int kThreads = 64;  // of table 3: 32 blocks of 64 for 256 channels of 14x14

// published: algorithm 2. direct: algorithm 1 without lines 11 and 12, each thread reads each filter from
// memory. direct_cached: algorithm 1, filters go through shared memory one at a time, behind barriers.
enum Form : int { kPublished, kDirect, kDirectCached };
constexpr const char* kNames[] = {"published", "direct", "direct_cached"};

// What kernels are compiled for. Of HNTMP a thread's tile is the one parameter: 4x7 makes the 32 blocks of
// table 3. The direct convolution's has a pixel of each thread, and the channels that make table 3's 73
// memory instructions for each channel of the input, 8 filters of 9 and the tile's; more leave it no
// registers.
struct Shape {
  int rows, columns, channels;
};
constexpr Shape kPublishedShapes[] = {{4, 7, kThreads}, {7, 7, kThreads}, {2, 7, kThreads}};
constexpr Shape kDirectShape = {8, 8, 8};
constexpr int kFilterSides[] = {1, 3};

struct Tiling {
  Form form;
  int64_t rows, columns, channels;  // of a block
};

struct Geometry {
  int64_t tiles_down, tiles_across, channel_blocks, blocks;
};

inline Geometry geometry_of(const Sweep& s, const Tiling& t) {
  Geometry g{};
  g.tiles_down = divide_up(s.result_height, t.rows);
  g.tiles_across = divide_up(s.result_width, t.columns);
  g.channel_blocks = divide_up(s.result_channels, t.channels);
  g.blocks = s.batch * g.channel_blocks * g.tiles_down * g.tiles_across;
  return g;
}

}  // namespace convx::hntmp::forms
