// How the form for pixels of channels_last is shared out, and what a thread has of its own, in floats.
#pragma once
#include <cstdint>

#include "methods/panels/panels.h"
#include "problem/sweep.h"

namespace convx::hntmp {

struct PixelsTiling {
  int64_t lanes;
  // Of an image: bands of rows times parts of the result's channels are tasks; a task makes strip_rows rows
  // at a time, for which the input's rows are copied.
  int64_t bands, parts, strip_rows;
  int64_t workers;  // threads with memory of their own
};

struct PixelsGeometry {
  int64_t blocks;  // vectors of result channels
  int64_t row;     // a copied row with its padding
  int64_t biases_at, worker;
  int64_t packed;  // filters: of each panel [row of taps][tap][channel][vectors][lanes]
};

inline PixelsGeometry pixels_geometry_of(const Sweep& s, const PixelsTiling& t) {
  constexpr int64_t kLine = 16;  // floats of a cache line, and of the widest vector
  PixelsGeometry g{};
  g.blocks = divide_up(s.result_channels, t.lanes);
  const int64_t columns = (s.result_width - 1) * s.stride_w + s.filter_width;
  g.row = round_up(columns * s.source_channels, kLine);
  const int64_t rows = (t.strip_rows - 1) * s.stride_h + s.filter_height;
  g.biases_at = rows * g.row + kLine;  // rows are packed by whole vectors
  g.worker = round_up(g.biases_at + g.blocks * t.lanes, kLine);
  g.packed = s.source_channels * s.taps() * g.blocks * t.lanes;
  return g;
}

}  // namespace convx::hntmp
