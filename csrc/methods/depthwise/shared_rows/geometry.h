// How shared_rows shares out planes; for the planner and the launcher.
#pragma once
#include <algorithm>
#include <cstdint>

#include "problem/problem.h"

namespace convx::depthwise::shared_rows {

constexpr int64_t kThreads = 256;  // of a block at most
// Of a group, so that a thread brings stride + 1 elements of a row at most.
constexpr int64_t kFewestColumns = 8;

// A group of threads, one a result column, makes a plane; planes wider than a block are cut into segments.
struct Geometry {
  int64_t segments, columns;  // of a plane's rows; threads of a group
  int64_t groups, threads;    // of a block
  int64_t row_elements;       // source elements under a group's results
  int64_t units;              // groups of the whole problem
  int64_t shared_bytes() const { return groups * 2 * row_elements * int64_t{sizeof(float)}; }
  int64_t blocks() const { return (units + groups - 1) / groups; }
};

inline Geometry geometry_of(const ConvProblem& problem, int lanes) {
  Geometry g{};
  g.segments = (problem.out_width + kThreads - 1) / kThreads;
  g.columns = std::max(kFewestColumns, (problem.out_width + g.segments - 1) / g.segments);
  g.row_elements = (g.columns - 1) * problem.stride_w + problem.filter_width;
  g.units = problem.batch * problem.out_channels * g.segments;
  g.groups = std::min(kThreads / g.columns, g.units);
  g.threads = (g.groups * g.columns + lanes - 1) / lanes * lanes;
  return g;
}

}  // namespace convx::depthwise::shared_rows
