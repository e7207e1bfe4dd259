// Which tiles of the tensor kernel a problem can use, and what that should cost.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "methods/cuconv/family.h"
#include "methods/cuconv/launch.h"
#include "methods/cuconv/tensor/cost.h"

namespace convx::cuconv {
namespace {

using matrix::Precision;
using tensor::Geometry;
using tensor::step_channels;

constexpr int64_t kLimit = int64_t{1} << 31;
constexpr int64_t kSplits[] = {1, 2, 4, 8};  // planes of partial sums

template <Precision Kind, class Tile>
Plan plan_of(int index, const Sweep& s, const Geometry& g, const tensor::Way& way, double us) {
  Plan plan;
  plan.candidate = "tensor";
  plan.kernel = kTensor;
  plan.tiling = {{"precision", Kind},
                 {"tile", index},
                 {"planes", way.planes},
                 {"depth", way.depth},
                 {"segment_taps", way.segment_taps},
                 {"together", way.together},
                 {"filters", Tile::kFilters},
                 {"columns", Tile::kColumns}};
  if (g.planes > 1) plan.workspace_bytes = g.planes * s.results() * 4;
  plan.packing = Kind == matrix::kSplit ? "64 filters in parts by taps" : "64 filters by taps";
  plan.packed_weight_bytes = s.groups * g.steps * s.taps() * g.m_tiles * tensor::filter_tile_bytes(Kind);
  plan.reads_both = Kind == matrix::kSplit;  // for sums that are not finite
  plan.predicted_us = us;
  return plan;
}

template <class Tile>
bool is_possible(const Geometry& g, const ConvProblem& problem, const Sweep& s, const DeviceTraits& device) {
  const bool fills = g.blocks / g.planes >= device.multiprocessors;
  if (g.planes > 1 && (fills || g.stages < 2 * g.planes || !within_budget(s, g.planes, problem.dtype)))
    return false;
  const int64_t elements =
      g.images * s.groups *
      std::max(s.source_channels * s.source_plane(), s.result_channels * s.result_plane());
  const int64_t packed_tiles = s.groups * g.steps * s.taps() * g.m_tiles;
  const bool countable = g.blocks < kLimit && elements < kLimit &&
                         s.batch * g.image_places + g.class_places < kLimit &&
                         s.batch * s.result_plane() < kLimit && packed_tiles < kLimit / 256;
  // A stage's source comes while the one before is multiplied, a batch a segment.
  return countable && g.batches <= g.segments &&
         g.shared_bytes + tensor::kBarrierBytes <= device.shared_bytes_per_block;
}

// Calls body(Way) for what a tile could do, possible or not.
template <class Body>
void for_each_way(const Sweep& s, int64_t steps, const Body& body) {
  // With one tap, pairs took 1.02 of the time on an H200; with several .84 to 1.
  const int64_t together = s.taps() > 1 && tensor::has_pairs(s) ? 2 : 1;
  for (const int64_t depth : tensor::kDepths) {
    if (depth > 1 && (s.taps() > 1 || depth > steps)) continue;
    const int64_t stages = divide_up(steps, depth);
    for (const int64_t split : kSplits) {
      // As many planes as have stages, of as many stages each.
      const int64_t planes = divide_up(stages, divide_up(stages, split));
      for (const int64_t segment_taps : tensor::kSegmentTaps) {
        // A stage of several steps is one segment.
        if (depth > 1 ? segment_taps != depth : segment_taps > s.taps()) continue;
        body({planes, depth, segment_taps, together});
      }
    }
  }
}

// Appends the best way to use a tile.
template <Precision Kind, class Tile>
void append_tile(int index, const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                 std::vector<Plan>& plans) {
  double best_us = std::numeric_limits<double>::infinity();
  tensor::Way best{};
  for_each_way(s, divide_up(s.source_channels, step_channels(Kind)), [&](const tensor::Way& way) {
    const Geometry g = tensor::geometry_of<Kind, Tile>(s, way);
    if (!is_possible<Tile>(g, problem, s, device)) return;
    const double us =
        tensor::predicted_us<Kind, Tile>(problem, device, s, g) + sum_us(s, g.planes, problem.dtype, device);
    if (us < best_us) best_us = us, best = way;
  });
  if (!std::isfinite(best_us)) return;
  const Geometry g = tensor::geometry_of<Kind, Tile>(s, best);
  plans.push_back(plan_of<Kind, Tile>(index, s, g, best, best_us));
}

template <Precision Kind>
void append_tiles(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                  std::vector<Plan>& plans) {
  for (int index = 0; index < tensor::kMostTiles; ++index) {
    tensor::with_tile<Kind>(
        index, [&](auto tile) { append_tile<Kind, decltype(tile)>(index, problem, device, s, plans); });
  }
}

}  // namespace

void append_tensor(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Sweep s = sweep_of(problem);
  if (device.backend != Backend::cuda || device.architecture != 90) return;
  // Its stores have no time for scales and residuals: calls without any took up to 1.46 times longer. Three
  // products for one are time enough.
  const bool split = problem.dtype == DType::float32 && !problem.allow_tf32;
  if (problem.epilogue.is_more_than_bias() && !split) return;
  if (split && s.source_channels < kFewestSplit) return;
  // Residues of taps are counted one by one.
  const bool strided = s.stride_h > 1 || s.stride_w > 1;
  if (strided && (s.dilation_h > 1 || s.dilation_w > 1)) return;
  switch (problem.dtype) {
    case DType::float64:
      return;
    case DType::bfloat16:
      return append_tiles<matrix::kBfloat16>(problem, device, s, plans);
    case DType::float16:
      return append_tiles<matrix::kFloat16>(problem, device, s, plans);
    case DType::float32:
      return split ? append_tiles<matrix::kSplit>(problem, device, s, plans)
                   : append_tiles<matrix::kTf32>(problem, device, s, plans);
  }
}

}  // namespace convx::cuconv
