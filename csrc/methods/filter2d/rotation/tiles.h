// Sizes of the rotation kernel, for the planner and the launcher alike.
#pragma once
#include <algorithm>

#include "methods/filter2d/kernels.h"

namespace convx::filter2d::rotation {

constexpr int kColumns = 4;  // of a lane
constexpr int kRows = 4;     // result rows of a lane
constexpr int kThreads = 128;
constexpr int64_t kMostTapBytes = 48 * 1024;  // of shared memory

// A lane's columns of the image begin `shift` before what its first tap needs, so that vectors of an image
// whose rows are aligned stay so.
inline int64_t shift_of(const FilterProblem& p) {
  return (kColumns - p.padding_left % kColumns) % kColumns;
}

// Pieces of kColumns taps that a filter row is read in, with the shift.
inline int64_t pieces_of(const FilterProblem& p) {
  return divide_up(p.filter_width + shift_of(p), kColumns);
}

inline int64_t tap_bytes_of(const FilterProblem& p) {
  return p.filter_height * pieces_of(p) * kColumns * (p.dtype == ImageType::float64 ? 8 : 4);
}

// Where lanes and tiles lie. A segment of a row is `step` lanes that make results and as many more at the
// right as hold what the last of these needs.
struct Geometry {
  int64_t step = 0, segments = 1, group_lanes = 1, groups_per_warp = 1;
  int64_t row_tiles = 1, units = 1, blocks = 1;
};

inline Geometry geometry_of(const FilterProblem& p, int64_t lanes) {
  Geometry geometry;
  const int64_t more = pieces_of(p), strips = divide_up(p.out_width, kColumns);
  double best = 0;
  for (int64_t groups = 1; groups <= lanes / (more + 1); ++groups) {
    const int64_t most = std::min(lanes / groups - more, strips);
    const int64_t segments = divide_up(strips, most), step = divide_up(strips, segments);
    const int64_t fitting = lanes / (step + more);
    const double used = static_cast<double>(strips * fitting) / static_cast<double>(segments);
    if (used <= best) continue;
    best = used;
    geometry.step = step, geometry.segments = segments;
    geometry.group_lanes = step + more, geometry.groups_per_warp = fitting;
  }
  if (geometry.step == 0) return geometry;
  geometry.row_tiles = divide_up(p.out_height, kRows);
  geometry.units = p.images * geometry.row_tiles * geometry.segments;
  geometry.blocks = divide_up(geometry.units, geometry.groups_per_warp * (kThreads / lanes)) * p.filters;
  return geometry;
}

}  // namespace convx::filter2d::rotation
