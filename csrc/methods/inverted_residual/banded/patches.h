// The source of a network's first convolution in channels_last, for the planner, the launcher and the kernel.
//
// A row of taps of a patch is one run of memory, of all its columns and channels: the depth of the product is
// made of pairs of a run's values, a 32-bit word each, read where the image's rows lie in shared memory. A
// run that begins with an odd value has one more before it, which counts as zero. As hntmp/stem_tensor does.
#pragma once
#include <cstdint>

#include "methods/inverted_residual/banded/shape.h"
#include "problem/block_problem.h"
#include "problem/divide.h"

namespace convx::inverted_residual::banded {

constexpr int64_t kPieceValues = 8;  // of a copy
constexpr int64_t kStepPairs = 8;    // of a step of the depth

struct PatchGeometry {
  int64_t lead;  // values before a run that make it begin with an even one
  int64_t run, run_pairs, steps;
  int64_t rows, pieces, pitch, bytes;  // of the image's rows that a window's patches meet
};

inline PatchGeometry patch_geometry_of(const BlockProblem& p, int64_t window_rows) {
  PatchGeometry g{};
  g.lead = p.expand_filter / 2 * p.channels & 1;
  g.run = p.expand_filter * p.channels;
  g.run_pairs = divide_up(g.lead + g.run, 2);
  g.steps = divide_up(p.expand_filter * g.run_pairs, kStepPairs);
  g.rows = (window_rows - 1) * p.expand_stride + p.expand_filter;
  const int64_t columns = (kWindowColumns - 1) * p.expand_stride + p.expand_filter;
  g.pieces = divide_up(kPieceValues - 1 + g.lead + columns * p.channels, kPieceValues);
  g.pitch = g.pieces * 16, g.bytes = g.rows * g.pitch;
  return g;
}

// Rows of the image in whole pieces, and pixels whose runs all begin alike.
inline bool has_patch_runs(const BlockProblem& p) {
  return p.layout == Layout::nhwc && p.width * p.channels % kPieceValues == 0 &&
         p.expand_stride * p.channels % 2 == 0;
}

}  // namespace convx::inverted_residual::banded
