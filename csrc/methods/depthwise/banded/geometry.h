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

// What of one axis is one region's, in units of `side`, of which it has at most so many.
struct Cut {
  int64_t units, regions;
};
inline Cut cut_of(int64_t size, int64_t side, int64_t most) {
  const int64_t units = divide_up(size, side), regions = divide_up(units, most);
  return {divide_up(units, regions), regions};
}

struct Geometry {
  Cut rows, columns;
  int64_t steps;                      // of depth: forward, of a tile; weight_grad, of a region's row
  int64_t planes;                     // of a block
  int64_t groups;                     // of channels
  int64_t staged_rows, pitch, group;  // of a plane's part in shared memory: RowPlaces
  int64_t plane_elements;
  int64_t band_elements;  // of a filter's rows, or a gradient's, each twice
  int64_t bands;
  int64_t shared_bytes;

  int64_t regions() const { return rows.regions * columns.regions; }
  int64_t units() const { return rows.units * columns.units; }

  // Of so many columns, where a lane has `own` rows: groups are an odd number of 32 bytes, so that four
  // lanes' rows, which half a warp reads at once, lie in different banks.
  void stage(int64_t columns_staged, int64_t own) {
    const int64_t halves = divide_up(columns_staged, kSide);
    pitch = halves * kSide;
    group = (halves * own + (halves * own + 1) % 2) * kSide;
    plane_elements = divide_up(staged_rows, own) * group;
  }
};

inline bool is_channels_last(const ConvProblem& problem) {
  return problem.layout == Layout::nhwc;
}
// Rows of a fragment that are one lane's.
constexpr int64_t rows_of_lane(int64_t lanes) {
  return lanes == 32 ? 2 : 1;
}
// Fragments that the taps of weight_grad take each way.
inline int64_t sides_of(const ConvProblem& problem) {
  return divide_up(std::max(problem.filter_height, problem.filter_width), kSide);
}

// Forward and input_grad: units are `stack` tiles, one above the other, of which a warp multiplies as many at
// once, and a region has at most `most` tiles each way. Every filter row lies in shared memory twice, the
// second time moved by one element: pairs of taps are words there, wherever they begin.
inline Geometry product_geometry(const ConvProblem& problem, int64_t lanes, int64_t stack, int64_t most) {
  const bool gradient = problem.operation == Operation::input_grad, last = is_channels_last(problem);
  Geometry g;
  g.rows = cut_of(gradient ? problem.in_height : problem.out_height, stack * kSide, divide_up(most, stack));
  g.columns = cut_of(gradient ? problem.in_width : problem.out_width, kSide, most);
  g.steps = divide_up(kSide - 1 + problem.filter_width, kSide);
  g.groups = last ? divide_up(problem.in_channels, kChannels) : problem.in_channels;
  // Small planes of several images are multiplied with one band.
  const int64_t wanted = divide_up(kPlaneWarps * stack, g.units());
  g.planes = last ? kChannels : g.regions() == 1 ? std::min(wanted, problem.batch) : 1;
  const int64_t height = g.rows.units * stack * kSide, width = g.columns.units * kSide;
  g.staged_rows = height + problem.filter_height - 1;
  g.stage(width + (g.steps - 1) * kSide, stack * rows_of_lane(lanes));
  g.band_elements = problem.filter_height * 2 * (g.steps + 1) * kSide;
  g.bands = last ? kChannels : 1;
  const int64_t staged = g.planes * g.plane_elements * kElementBytes;
  // Sums of channels that are last come together there, a row of pixels and one more.
  const int64_t sums = last ? height * (width + 1) * kChannels * 4 : 0;
  g.shared_bytes = std::max(staged, sums) + g.bands * g.band_elements * kElementBytes;
  return g;
}

inline int64_t product_blocks(const ConvProblem& problem, const Geometry& g) {
  const int64_t images = is_channels_last(problem) ? problem.batch : divide_up(problem.batch, g.planes);
  return g.groups * g.regions() * images;
}

// weight_grad: rows of the gradient take the place of the filter's, and taps that of results.
inline Geometry weight_geometry(const ConvProblem& problem, int64_t lanes, int64_t most) {
  const bool last = is_channels_last(problem);
  const int64_t sides = sides_of(problem), taps = sides * kSide;
  Geometry g;
  g.rows = cut_of(problem.out_height, kSide, most);
  g.columns = cut_of(problem.out_width, kSide, most);
  g.steps = divide_up(g.columns.units * kSide - 1 + problem.filter_width, kSide);
  g.groups = last ? divide_up(problem.in_channels, kChannels) : problem.in_channels;
  g.planes = last ? kChannels : 1;
  g.staged_rows = g.rows.units * kSide + taps - 1;
  g.stage(g.steps * kSide, sides * rows_of_lane(lanes));
  g.band_elements = g.rows.units * kSide * 2 * (g.steps + 2) * kSide;
  g.bands = g.planes;
  const int64_t staged = (g.planes * g.plane_elements + g.bands * g.band_elements) * kElementBytes;
  const int64_t sums = warps(last) * taps * taps * 4;
  g.shared_bytes = std::max(staged, sums);
  return g;
}

}  // namespace convx::depthwise::banded
