// How a banded product is cut: regions of the result, planes of a block, and its shared memory. Host only.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/depthwise/banded/sizes.h"
#include "problem/device.h"
#include "problem/divide.h"
#include "problem/problem.h"

namespace convx::depthwise::banded {

constexpr int64_t kMostTaps = 32;  // of a filter's row or column
constexpr int64_t kElementBytes = 2;
constexpr int warps(bool channels_last) {
  return channels_last ? kChannels : kPlaneWarps;
}

// Elements from row to row: an odd number of 32 bytes, so that four rows, which half a warp reads at once,
// lie in different banks.
constexpr int64_t pitch_of(int64_t elements) {
  const int64_t halves = divide_up(elements, kSide);
  return (halves + (halves + 1) % 2) * kSide;
}

// What of one axis is one region's.
struct Cut {
  int64_t tiles, regions;
};
inline Cut cut_of(int64_t size, int64_t most_tiles) {
  const int64_t tiles = divide_up(size, kSide), regions = divide_up(tiles, most_tiles);
  return {divide_up(tiles, regions), regions};
}

struct Geometry {
  Cut rows, columns;
  int64_t steps;               // of depth: forward, of a tile; weight_grad, of a region's row
  int64_t planes;              // of a block
  int64_t groups;              // of channels
  int64_t staged_rows, pitch;  // of a plane's part in shared memory
  int64_t band_elements;       // of a filter's rows, or a gradient's, each twice
  int64_t bands;
  int64_t shared_bytes;

  int64_t regions() const { return rows.regions * columns.regions; }
  int64_t tiles() const { return rows.tiles * columns.tiles; }
};

inline bool is_channels_last(const ConvProblem& problem) {
  return problem.layout == Layout::nhwc;
}
// Fragments that the taps of weight_grad take each way.
inline int64_t sides_of(const ConvProblem& problem) {
  return divide_up(std::max(problem.filter_height, problem.filter_width), kSide);
}

// Forward and input_grad. Every filter row lies in shared memory twice, the second time moved by one element:
// pairs of taps are words there, wherever they begin.
inline Geometry product_geometry(const ConvProblem& problem, int64_t most_tiles, int64_t tiles_at_once) {
  const bool gradient = problem.operation == Operation::input_grad, last = is_channels_last(problem);
  Geometry g;
  g.rows = cut_of(gradient ? problem.in_height : problem.out_height, most_tiles);
  g.columns = cut_of(gradient ? problem.in_width : problem.out_width, most_tiles);
  g.steps = divide_up(kSide - 1 + problem.filter_width, kSide);
  g.groups = last ? divide_up(problem.in_channels, kChannels) : problem.in_channels;
  // Small planes of several images are multiplied with one band.
  const int64_t wanted = divide_up(kPlaneWarps * tiles_at_once, g.tiles());
  g.planes = last ? kChannels : g.regions() == 1 ? std::min(wanted, problem.batch) : 1;
  g.staged_rows = g.rows.tiles * kSide + problem.filter_height - 1;
  g.pitch = pitch_of((g.columns.tiles - 1 + g.steps) * kSide);
  g.band_elements = problem.filter_height * 2 * (g.steps + 1) * kSide;
  g.bands = last ? kChannels : 1;
  const int64_t staged = g.planes * g.staged_rows * g.pitch * kElementBytes;
  // Sums of channels that are last come together there, a row of pixels and one more.
  const int64_t sums = last ? g.rows.tiles * kSide * (g.columns.tiles * kSide + 1) * kChannels * 4 : 0;
  g.shared_bytes = std::max(staged, sums) + g.bands * g.band_elements * kElementBytes;
  return g;
}

inline int64_t product_blocks(const ConvProblem& problem, const Geometry& g) {
  const int64_t images = is_channels_last(problem) ? problem.batch : divide_up(problem.batch, g.planes);
  return g.groups * g.regions() * images;
}

// weight_grad: rows of the gradient take the place of the filter's, and taps that of results.
inline Geometry weight_geometry(const ConvProblem& problem, int64_t most_tiles) {
  const bool last = is_channels_last(problem);
  const int64_t side = sides_of(problem) * kSide;
  Geometry g;
  g.rows = cut_of(problem.out_height, most_tiles);
  g.columns = cut_of(problem.out_width, most_tiles);
  g.steps = divide_up(g.columns.tiles * kSide - 1 + problem.filter_width, kSide);
  g.groups = last ? divide_up(problem.in_channels, kChannels) : problem.in_channels;
  g.planes = last ? kChannels : 1;
  g.staged_rows = g.rows.tiles * kSide + side - 1;
  g.pitch = pitch_of(g.steps * kSide);
  g.band_elements = g.rows.tiles * kSide * 2 * (g.steps + 2) * kSide;
  g.bands = g.planes;
  const int64_t staged = (g.planes * g.staged_rows * g.pitch + g.bands * g.band_elements) * kElementBytes;
  const int64_t sums = warps(last) * side * side * 4;
  g.shared_bytes = std::max(staged, sums);
  return g;
}

}  // namespace convx::depthwise::banded
