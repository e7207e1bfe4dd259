// How strip_weight lays a row of the output gradient on the lanes of a warp; shared by planner and launcher.
#pragma once
#include <algorithm>
#include <cstdint>

#include "../weight_slices.h"
#include "problem/problem.h"

namespace convx::depthwise {

constexpr int64_t kStripWeightRows = 7;  // output rows of a unit of work
// Threads of a block at most, so that the sums and rows of a thread fit its share of the registers: 128, 168
// or 255 on NVIDIA, 256 where waves have 64 lanes.
constexpr int64_t strip_weight_threads(int64_t lanes, int64_t filter, int64_t columns, bool aligned) {
  if (lanes == 64) return 256;
  if (filter == 7) return aligned ? 384 : 256;
  return !aligned || (filter == 5 && columns == 8) ? 384 : 512;
}
template <int Lanes, int Filter, int Columns, bool Aligned>
constexpr int kStripWeightThreads = static_cast<int>(strip_weight_threads(Lanes, Filter, Columns, Aligned));

// A lane owns `columns` input columns and columns / stride output columns: a strip. A segment of lanes holds
// neighbouring strips of one row and ends in a lane that lies right of the image and reads zeros, which
// serves as the left neighbour of the next segment too. Rows wider than the warp, and windows that do not
// start at the strip's first column, have one more such lane in front and are cut into overlapping tiles.
struct StripWeightGeometry {
  int64_t lead;           // lanes in front of the first strip: 0 or 1
  int64_t strips;         // strips of a tile
  int64_t tiles;          // tiles of a row
  int64_t segment_lanes;  // lead + strips + 1
  int64_t segments;       // segments side by side in a warp, each its own unit
  int64_t groups;         // row groups of a plane
  int64_t units(const ConvProblem& problem) const { return problem.batch * groups * tiles; }
};

inline StripWeightGeometry strip_weight_geometry(const ConvProblem& problem, int64_t columns, int64_t lanes) {
  const int64_t stride = problem.stride_w;
  const int64_t width = std::max(problem.out_width, divide_up(problem.in_width, stride));
  const int64_t all_strips = divide_up(width, columns / stride);
  StripWeightGeometry geometry{};
  const bool centred = problem.padding_left == problem.filter_width / 2;
  if (centred && all_strips + 1 <= lanes) {
    geometry.lead = 0;
    geometry.strips = all_strips;
  } else {
    geometry.lead = 1;
    geometry.strips = std::min(divide_up(problem.out_width, columns / stride), lanes - 2);
  }
  geometry.tiles = divide_up(divide_up(problem.out_width, columns / stride), geometry.strips);
  geometry.segment_lanes = geometry.lead + geometry.strips + 1;
  geometry.segments = lanes / geometry.segment_lanes;
  geometry.groups = divide_up(problem.out_height, kStripWeightRows);
  return geometry;
}

// Whether whole strips can be loaded by one instruction from rows of these widths.
inline bool strip_weight_aligned(const ConvProblem& problem, int64_t columns) {
  return problem.padding_left == problem.filter_width / 2 && problem.in_width % columns == 0 &&
         problem.out_width % (columns / problem.stride_w) == 0;
}

}  // namespace convx::depthwise
