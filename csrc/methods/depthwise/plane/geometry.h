// How the plane kernel shares out planes; for the planner and the launcher.
//
// Planes of nchw tensors follow each other without gaps across channels and images. A warp takes chunks of
// consecutive planes; chunk numbers of one warp differ by multiples of `period`, so that each of its lanes
// meets one channel alone, whatever the number of channels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "problem/problem.h"

namespace convx::depthwise::plane {

struct Tile {
  int stages;      // chunks in a warp's shared memory
  int warps;       // of a block at most, at 32 lanes
  int min_blocks;  // of a multiprocessor, which bounds registers
};

// Measured on an H200 (findings/depthwise.md) for 32 lanes. Only NVIDIA's copies run ahead of their use, so
// more than one stage does nothing for warps of 64.
constexpr Tile tile_of(int lanes, int bytes, int filter, int side) {
  Tile tile = side == 14 ? Tile{2, 8, 2} : (filter == 3 ? Tile{2, 4, 4} : Tile{3, 4, 3});
  if (bytes == 2) {
    if (side == 14 && filter == 3) tile = {3, 6, 2};
    if (side == 7) tile = {filter == 3 ? 3 : 4, 4, 4};
  }
  if (lanes == 64) tile.stages = 1;
  return tile;
}

// Planes of a warp's chunk: one a lane at 7x7, one per four lanes at 14x14.
constexpr int planes_of_chunk(int lanes, int side) {
  return side == 14 ? lanes / 4 : lanes;
}

struct Shares {
  int64_t chunks;  // of the whole tensor; the last may be partial
  int64_t period;
};

inline Shares shares_of(const ConvProblem& problem, int lanes) {
  const int64_t planes = planes_of_chunk(lanes, static_cast<int>(problem.in_width));
  return {(problem.batch * problem.in_channels + planes - 1) / planes,
          problem.in_channels / std::gcd(problem.in_channels, planes)};
}

}  // namespace convx::depthwise::plane
