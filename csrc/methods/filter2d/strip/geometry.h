// Where lanes, row segments and tiles lie: host arithmetic shared by the planner and the launcher.
//
// A row is cut into strips of `columns` columns, one a lane, and into segments of `step` strips, whose group
// of lanes has one lane more on each side that only loads. Groups lie side by side in a warp. Groups of a
// block are stacked: they make row tiles one above the other, which share rows in L1.
#pragma once
#include <algorithm>

#include "methods/filter2d/kernels.h"
#include "methods/filter2d/strip/tiles.h"

namespace convx::filter2d::strip {

// What the planner chooses.
struct Cut {
  int64_t step = 1, segments = 1;
  int64_t stack = 1;
  int64_t filters_per_block = 1;
};

// What follows from it.
struct Geometry {
  int64_t group_lanes, groups_per_warp, groups_per_block;
  int64_t row_stacks;
  int64_t units;  // lane groups of the whole problem
  int64_t filter_groups, blocks;
};

inline Geometry geometry_of(const FilterProblem& problem, const Tile& tile, const Cut& cut, int64_t lanes) {
  Geometry geometry{};
  geometry.group_lanes = cut.step + 2;
  geometry.groups_per_warp = lanes / geometry.group_lanes;
  geometry.groups_per_block = geometry.groups_per_warp * (tile.threads / lanes);
  geometry.row_stacks = divide_up(divide_up(problem.out_height, tile.rows), cut.stack);
  geometry.units = problem.images * geometry.row_stacks * cut.stack * cut.segments;
  geometry.filter_groups = divide_up(problem.filters, cut.filters_per_block);
  geometry.blocks = divide_up(geometry.units, geometry.groups_per_block) * geometry.filter_groups;
  return geometry;
}

// Cuts rows so that most lanes make results.
inline void cut_rows(Cut& cut, int64_t strips, int64_t lanes) {
  double best = 0;
  for (int64_t groups = 1; groups <= lanes / 4; ++groups) {
    const int64_t most = std::min(lanes / groups - 2, strips);
    const int64_t segments = divide_up(strips, most), step = divide_up(strips, segments);
    const double used = static_cast<double>(strips * (lanes / (step + 2))) / static_cast<double>(segments);
    if (used <= best) continue;
    best = used;
    cut.step = step;
    cut.segments = segments;
  }
}

inline Cut choose_cut(const FilterProblem& problem, const DeviceTraits& device, const Tile& tile) {
  Cut cut;
  cut_rows(cut, divide_up(problem.out_width, tile.columns), device.lanes);
  const int64_t groups_per_block = geometry_of(problem, tile, cut, device.lanes).groups_per_block;
  if (divide_up(problem.out_height, tile.rows) >= 4 * groups_per_block) cut.stack = groups_per_block;
  // As many filters a block as leave every multiprocessor 16 warps.
  cut.filters_per_block = problem.filters;
  const int64_t unit_blocks = geometry_of(problem, tile, cut, device.lanes).blocks;
  const int64_t wanted = divide_up(16 * 32 * std::max<int64_t>(device.multiprocessors, 1), tile.threads);
  const int64_t groups = std::max(divide_up(problem.filters, kMostFilters),
                                  std::min(problem.filters, divide_up(wanted, unit_blocks)));
  cut.filters_per_block = divide_up(problem.filters, groups);
  return cut;
}

}  // namespace convx::filter2d::strip
