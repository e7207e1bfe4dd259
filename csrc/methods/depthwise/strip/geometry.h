// Where lanes, row segments and tiles lie: host arithmetic shared by the planner and the launcher.
//
// A row is cut into strips of `columns` source columns, one a lane. Lane groups lie side by side in a warp;
// neighbours exchange halo columns by shuffle. Where a whole row fits, the group has one lane more than
// strips: it lies outside the row and so holds the zeros that both its neighbours need. A longer row is cut
// into segments, whose groups have a lane on each side that only loads.
#pragma once
#include "methods/depthwise/strip/tiles.h"
#include "problem/sweep.h"

namespace convx::depthwise::strip {

// The operation as a correlation or its transpose from a source to a result, of the same stride both ways.
struct View : Sweep {
  Mapping mapping;
};

inline View view_of(const ConvProblem& p) {
  const Sweep sweep = sweep_of(p);
  const Mapping correlation = p.stride_h == 1 ? Mapping::correlate1 : Mapping::correlate2;
  return {sweep, sweep.transposed ? Mapping::transpose2 : correlation};
}

inline int64_t divide_up(int64_t value, int64_t divisor) {  // for any sign of value
  return value >= 0 ? (value + divisor - 1) / divisor : -((-value) / divisor);
}
inline int64_t divide_down(int64_t value, int64_t divisor) {
  return -divide_up(-value, divisor);
}

struct Geometry {
  int64_t column_shift;  // result column of strip s is s * result_columns + column_shift
  int64_t first_strip, strips;
  int64_t step, segments;  // strips that a lane group makes; groups along a row
  int64_t lead;            // lanes before the first that makes results
  int64_t group_lanes, groups_per_warp;
  int64_t row_tiles, first_source_row, first_result_row;
  int64_t units;  // lane groups of the whole problem
  int64_t warps() const { return divide_up(units, groups_per_warp); }
};

// Cuts rows so that most lanes make results; a cut costs its two loading lanes and their repeated loads.
inline void choose_step(Geometry& geometry, int lanes) {
  double best = 0;
  for (int64_t segments = 1; segments <= geometry.strips; ++segments) {
    const int64_t step = divide_up(geometry.strips, segments);
    const int64_t group_lanes = step + (segments == 1 ? 1 : 2);
    if (group_lanes > lanes) continue;
    if (segments > 1 && step < 6 && best > 0) break;
    const double lanes_spent =
        static_cast<double>(segments * lanes) / static_cast<double>(lanes / group_lanes);
    const double repeated = segments == 1 ? 0 : 0.5 / static_cast<double>(step);
    const double score = static_cast<double>(geometry.strips) / lanes_spent - repeated;
    if (score > best) {
      best = score;
      geometry.segments = segments;
      geometry.step = step;
      geometry.lead = segments == 1 ? 0 : 1;
      geometry.group_lanes = group_lanes;
    }
  }
  geometry.groups_per_warp = lanes / geometry.group_lanes;
}

inline Geometry geometry_of(const View& view, int64_t filter, const Tile& tile, int lanes) {
  Geometry geometry{};
  const int64_t center = filter / 2;  // the padding at which strips of source and result coincide
  const int64_t results = result_columns(view.mapping, tile.columns);
  if (view.mapping == Mapping::transpose2) {
    // Rows 2 * r + center - top belong to source row r; the first tile starts at an r that covers row 0.
    const int64_t first = divide_down(view.top - center, 2);
    geometry.column_shift = center - view.left;
    geometry.first_result_row = 2 * first + center - view.top;
    geometry.first_source_row = first - center / 2;
  } else {
    geometry.column_shift =
        view.mapping == Mapping::correlate1 ? view.left - center : (view.left - center) / 2;
    geometry.first_result_row = 0;
    geometry.first_source_row = -view.top;
  }
  geometry.row_tiles = divide_up(view.result_height - geometry.first_result_row, tile.rows);
  // Strips of all results, and of all source columns: what lies beyond them is zero.
  geometry.first_strip = divide_down(-geometry.column_shift, results);
  if (geometry.first_strip > 0) geometry.first_strip = 0;
  int64_t end = divide_up(view.result_width - geometry.column_shift, results);
  const int64_t source_end = divide_up(view.source_width, tile.columns);
  if (end < source_end) end = source_end;
  geometry.strips = end - geometry.first_strip;
  choose_step(geometry, lanes);
  geometry.units = view.batch * view.all_result_channels() * geometry.row_tiles * geometry.segments;
  return geometry;
}

}  // namespace convx::depthwise::strip
