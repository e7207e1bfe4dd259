// Which source elements and filter taps make which results, as constants of a kernel.
#pragma once
#include "methods/depthwise/strip/tiles.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::strip {

// Index arithmetic of the mappings. Left and Right are the halo columns on the two sides of a lane's own.
template <Mapping M, int Filter, int Columns, int Rows>
struct Taps {
  static constexpr int kStride = M == Mapping::correlate1 ? 1 : 2;
  static constexpr int kResults = result_columns(M, Columns);
  static constexpr int kLeft = Filter / 2;
  static constexpr int kRight = Filter - Filter / 2 - kStride;
  static constexpr int kSourceRows = (Rows - 1) * kStride + Filter;
  static constexpr int kSourceStep = Rows * kStride;  // source rows from tile to tile
  // Filter row that takes source row i to result row o; outside 0 .. Filter - 1 where there is none.
  CONVX_DEVICE static constexpr int filter_row(int i, int o) { return i - o * kStride; }
  CONVX_DEVICE static constexpr int last_source_row(int o) { return o * kStride + Filter - 1; }
  // Place in the window of the source element that filter column q takes to result column v; -1 for none.
  CONVX_DEVICE static constexpr int window_index(int v, int q) { return v * kStride + q; }
};

template <int Filter, int Columns, int Rows>
struct Taps<Mapping::transpose2, Filter, Columns, Rows> {
  static constexpr int kCenter = Filter / 2;
  static constexpr int kResults = 2 * Columns;
  static constexpr int kLeft = kCenter / 2;
  static constexpr int kRight = (kCenter + 1) / 2;
  static constexpr int kSourceRows = Rows / 2 + kLeft + kRight;
  static constexpr int kSourceStep = Rows / 2;
  CONVX_DEVICE static constexpr int filter_row(int i, int o) { return o + kCenter - 2 * (i - kLeft); }
  CONVX_DEVICE static constexpr int last_source_row(int o) { return (o + kCenter) / 2 + kLeft; }
  CONVX_DEVICE static constexpr int window_index(int v, int q) {
    return (v + kCenter + q) % 2 != 0 ? -1 : (v + kCenter - q + 2 * kLeft) / 2;
  }
};

}  // namespace convx::depthwise::strip
