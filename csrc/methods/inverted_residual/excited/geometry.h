// What lies where in the packed filters and in the workspace. Bytes, but for what is said.
#pragma once
#include <cstdint>

#include "methods/gates/geometry.h"
#include "methods/inverted_residual/banded/geometry.h"
#include "methods/shallow/geometry.h"

namespace convx::inverted_residual::excited {

constexpr int64_t kMostDepth = shallow::kMostPairs * 32;  // channels that the last product sums
constexpr int64_t kAligned = 256;                         // where each part begins

struct Tiling {
  banded::Tiling filtering;
  shallow::Tiling product;
};

struct Geometry {
  banded::Geometry filtering;
  matrix::Product product;
  shallow::Geometry projecting;
  gates::Tiling gate_tiling;
  gates::Geometry gating;
  int64_t tiles;  // of an image
  // Packed: fragments of the last product's filters, what is as torch has it, then chunks of filters.
  int64_t project_bias_at, squeeze_at, squeeze_bias_at, excite_at, excite_bias_at, chunks_at, packed_bytes;
  // Workspace: what is filtered; sums of its planes; gates.
  int64_t plane_sums_at, gates_at, workspace_bytes;
};

// A block makes the gates of an image.
inline gates::Tiling gate_tiling_of(const ExciteProblem& p) {
  constexpr int64_t kMostStaged = 64 << 10;  // that every GPU's blocks have
  gates::Tiling t{32, 1, false, false, true};
  t.stages_matrices = gates::geometry_of(p, t).shared_bytes <= kMostStaged;
  return t;
}

inline Geometry geometry_of(const BlockProblem& p, const Tiling& t) {
  constexpr int64_t kBytes = 2;
  Geometry g{};
  g.filtering = banded::geometry_of(p, t.filtering);
  g.tiles = g.filtering.tiles_down * g.filtering.tiles_across;
  g.product = {p.out_channels, p.batch * p.out_pixels(), p.expanded_channels, true};
  g.projecting = shallow::geometry_of(g.product, t.product);
  g.gate_tiling = gate_tiling_of(p.excitation());
  g.gating = gates::geometry_of(p.excitation(), g.gate_tiling);

  const auto behind = [](int64_t place, int64_t bytes) { return round_up(place + bytes, kAligned); };
  const int64_t matrix = p.squeezed_channels * p.expanded_channels * kBytes;
  g.project_bias_at = behind(0, g.projecting.pairs * g.projecting.step_pairs * 2048);
  g.squeeze_at = behind(g.project_bias_at, p.out_channels * kBytes);
  g.squeeze_bias_at = behind(g.squeeze_at, matrix);
  g.excite_at = behind(g.squeeze_bias_at, p.squeezed_channels * kBytes);
  g.excite_bias_at = behind(g.excite_at, matrix);
  g.chunks_at = behind(g.excite_bias_at, p.expanded_channels * kBytes);
  g.packed_bytes = g.chunks_at + g.filtering.packed_bytes;

  g.plane_sums_at = behind(0, p.filtered_elements() * kBytes);
  g.gates_at = behind(g.plane_sums_at, p.batch * g.tiles * p.expanded_channels * 4);
  g.workspace_bytes = g.gates_at + p.batch * p.expanded_channels * kBytes;
  return g;
}

}  // namespace convx::inverted_residual::excited
