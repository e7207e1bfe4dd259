// How the plane_split kernel shares out planes, for the planner and the launcher: a block takes a few whole
// planes, each of its threads a strip of one row (stride 1 and 2) or of two rows (gradient of stride 2).
#pragma once
#include <algorithm>

#include "methods/depthwise/strip/geometry.h"

namespace convx::depthwise::plane_split {

using strip::Mapping;
using strip::View;

constexpr int kThreads = 128;  // of a block at most

// Results of a thread, along columns. 7 divides the widths of most networks, and as an odd stride from lane
// to lane meets no bank conflict.
constexpr int strip_of(Mapping mapping) {
  return mapping == Mapping::transpose2 ? 14 : 7;
}
constexpr int rows_of(Mapping mapping) {
  return mapping == Mapping::transpose2 ? 2 : 1;
}

struct Geometry {
  int64_t first_source_row, first_source_column, first_result_row, first_result_column;
  int64_t strips, tiles;  // of a row of results; of a plane
  int64_t source_plane, result_plane;
  int64_t planes;
  int64_t units() const { return strips * tiles; }  // of a plane
};

inline Geometry geometry_of(const View& view, int64_t filter) {
  Geometry geometry{};
  if (view.mapping == Mapping::transpose2) {
    // Results 2 * s + center - padding and the next belong to source element s; see strip::geometry_of.
    const int64_t center = filter / 2;
    const int64_t row = strip::divide_down(view.top - center, 2);
    const int64_t column = strip::divide_down(view.left - center, 2);
    geometry.first_result_row = 2 * row + center - view.top;
    geometry.first_result_column = 2 * column + center - view.left;
    geometry.first_source_row = row - center / 2;
    geometry.first_source_column = column - center / 2;
  } else {
    geometry.first_source_row = -view.top;
    geometry.first_source_column = -view.left;
  }
  geometry.strips =
      strip::divide_up(view.result_width - geometry.first_result_column, strip_of(view.mapping));
  geometry.tiles = strip::divide_up(view.result_height - geometry.first_result_row, rows_of(view.mapping));
  geometry.source_plane = view.source_plane();
  geometry.result_plane = view.result_plane();
  geometry.planes = view.batch * view.all_result_channels();
  return geometry;
}

// Shared memory: the source as floats, zeros that stand for rows outside, the results as elements. Each
// tensor keeps its offset from a multiple of 16 bytes, so the ends take up to a vector more.
constexpr int64_t kZeros = 24;  // the widest window is 19
inline int64_t source_floats(const Geometry& geometry, int64_t planes, int64_t element_bytes) {
  const int64_t vector = 16 / element_bytes;
  return (planes * geometry.source_plane + 2 * vector - 1) / vector * vector;
}
inline int64_t shared_bytes(const Geometry& geometry, int64_t planes, int64_t element_bytes) {
  return (source_floats(geometry, planes, element_bytes) + kZeros) * 4 +
         (planes * geometry.result_plane * element_bytes + 31) / 16 * 16;
}

}  // namespace convx::depthwise::plane_split
