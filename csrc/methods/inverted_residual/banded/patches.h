// The source of a network's first convolution in channels_last, runs of values (methods/runs.h), for the
// planner, the launcher and the kernel.
#pragma once
#include <cstdint>

#include "methods/inverted_residual/banded/shape.h"
#include "methods/runs.h"
#include "problem/block_problem.h"
#include "problem/divide.h"

namespace convx::inverted_residual::banded {

struct PatchGeometry {
  RunGeometry runs;
  int64_t rows, pieces, pitch, bytes;  // of the image's rows that a window's patches meet
};

inline PatchGeometry patch_geometry_of(const BlockProblem& p, int64_t window_rows) {
  PatchGeometry g{};
  g.runs = run_geometry_of(p.expand_filter, p.expand_filter, p.channels, p.expand_filter / 2);
  g.rows = (window_rows - 1) * p.expand_stride + p.expand_filter;
  const int64_t columns = (kWindowColumns - 1) * p.expand_stride + p.expand_filter;
  g.pieces = divide_up(kPieceValues - 1 + g.runs.lead + columns * p.channels, kPieceValues);
  g.pitch = g.pieces * 16, g.bytes = g.rows * g.pitch;
  return g;
}

// Rows of the image in whole pieces, and pixels whose runs all begin alike.
inline bool has_patch_runs(const BlockProblem& p) {
  return p.layout == Layout::nhwc && p.width * p.channels % kPieceValues == 0 &&
         p.expand_stride * p.channels % 2 == 0;
}

}  // namespace convx::inverted_residual::banded
