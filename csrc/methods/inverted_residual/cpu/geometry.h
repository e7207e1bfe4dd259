// How a block is shared out among threads, and what lies where in the packed filters and the workspace, in
// floats.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/panels/panels.h"
#include "problem/block_problem.h"
#include "problem/divide.h"

namespace convx::inverted_residual::cpu {

using panels::kPanel;

constexpr int64_t kMostHeight = 240;  // of results: a thread lists the rows that their filters meet

struct Tiling {
  int64_t lanes = 0;
  // Bands of rows of each image, of which a thread makes strip_rows at a time, all channels: to the end, or,
  // where squeeze-and-excitation waits for all of the image, to what is filtered. Of 0 bands all threads
  // expand and filter some channels of every image first, then scale them by their gates, and project some
  // pixels in the end.
  int64_t bands = 0;
  int64_t strip_rows = 0;
  int64_t workers = 1;  // threads that have scratch memory of their own
};

struct Geometry {
  int64_t blocks, out_blocks;  // vectors of expanded channels, and of the result's
  // Packed: of each panel [depth][vectors of it][lanes]; depthwise filters [block][taps][lanes].
  // Matrices of squeeze-and-excitation, both [squeezed channel][block][lane].
  int64_t expand_bias_at, depthwise_at, depthwise_bias_at, project_at, project_bias_at;
  int64_t squeeze_at, squeeze_bias_at, excite_at, excite_bias_at;
  int64_t is_finite_at, packed;  // 1 where all depthwise filters are
  // A thread's own. Expanded rows with their padding, [block][row][column][lane], of which ring_rows are
  // there at a time; rows of zeros; filtered strips, [block][pixel][lane]; padded rows of a first
  // convolution's patches.
  int64_t row, ring_rows, block_rows;  // a row's floats; block_rows: from block to block
  int64_t zeros_at, filtered_at, filtered_block, lines_at, line, squeezed_at, squeezed, worker;
  // Behind that, of all images: what is filtered, where threads share it; sums of a band's planes; what each
  // part of the expanded channels adds to the squeezed ones; gates.
  int64_t filtered_images_at, plane_sums_at, parts_at, parts, gates_at, workspace;
};

// Whether what is filtered is the memory of all threads.
inline bool is_shared(const BlockProblem& p, const Tiling& t) {
  return t.bands == 0 || (t.bands > 1 && p.squeezed_channels > 0);
}

inline Geometry geometry_of(const BlockProblem& p, const Tiling& t) {
  Geometry g{};
  const int64_t lanes = t.lanes, padding = p.filter / 2;
  g.blocks = divide_up(p.expanded_channels, lanes), g.out_blocks = divide_up(p.out_channels, lanes);
  g.expand_bias_at = p.expand_depth() * g.blocks * lanes;
  g.depthwise_at = g.expand_bias_at + g.blocks * lanes;
  g.depthwise_bias_at = g.depthwise_at + g.blocks * p.filter * p.filter * lanes;
  g.project_at = g.depthwise_bias_at + g.blocks * lanes;
  g.project_bias_at = g.project_at + p.expanded_channels * g.out_blocks * lanes;
  g.squeeze_at = g.project_bias_at + g.out_blocks * lanes;
  g.squeeze_bias_at = g.squeeze_at + p.squeezed_channels * g.blocks * lanes;
  g.excite_at = g.squeeze_bias_at + round_up(p.squeezed_channels, lanes);
  g.excite_bias_at = g.excite_at + p.squeezed_channels * g.blocks * lanes;
  g.is_finite_at = p.squeezed_channels > 0 ? g.excite_bias_at + g.blocks * lanes : g.squeeze_at;
  g.packed = g.is_finite_at + 1;

  constexpr int64_t kLine = 16;  // floats of a cache line
  const bool is_banded = t.bands > 0, is_excited = p.squeezed_channels > 0;
  g.row = (p.expanded_width + 2 * padding) * lanes;
  g.ring_rows =
      is_banded ? std::min((t.strip_rows - 1) * p.stride + p.filter, p.expanded_height) : p.expanded_height;
  // Blocks that lie a multiple of 4 KB apart would meet the same sets of the first cache.
  const auto apart = [](int64_t floats) { return round_up(floats, 1024) + kLine; };
  g.block_rows = apart(g.ring_rows * g.row);
  const int64_t own_blocks = is_banded ? g.blocks : std::min(g.blocks, kPanel);
  g.zeros_at = own_blocks * g.block_rows;
  g.filtered_at = g.zeros_at + g.row;
  g.filtered_block = apart((is_banded && !is_excited ? t.strip_rows * p.out_width : p.out_pixels()) * lanes);
  const int64_t filtered = g.blocks * g.filtered_block;
  g.lines_at = g.filtered_at + (is_shared(p, t) ? 0 : filtered);
  g.line = round_up(p.width + 2 * (p.expand_filter / 2), kLine);
  // A row is packed by whole vectors: of the last one some may lie behind it.
  const int64_t lines = p.expand_filter > 1 ? p.channels * p.expand_filter * g.line + kLine : 0;
  g.squeezed_at = round_up(g.lines_at + lines, kLine), g.squeezed = round_up(p.squeezed_channels, lanes);
  g.worker = round_up(g.squeezed_at + g.squeezed, kLine);
  g.filtered_images_at = t.workers * g.worker;
  g.plane_sums_at = g.filtered_images_at + (is_shared(p, t) ? p.batch * filtered : 0);
  g.parts = is_banded ? 1 : divide_up(g.blocks, kPanel);
  g.parts_at =
      g.plane_sums_at + (is_excited ? p.batch * std::max<int64_t>(t.bands, 1) * g.blocks * lanes : 0);
  g.gates_at = g.parts_at + p.batch * g.parts * g.squeezed;
  g.workspace = g.gates_at + (is_excited ? p.batch * g.blocks * lanes : 0);
  return g;
}

}  // namespace convx::inverted_residual::cpu
