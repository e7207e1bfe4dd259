// Which tiles of the warpgroup kernel a problem can use, and what that should cost.
#include <algorithm>
#include <cmath>
#include <string>

#include "methods/cuconv/family.h"
#include "methods/cuconv/launch.h"
#include "methods/cuconv/warpgroup/geometry.h"

namespace convx::cuconv {
namespace {

using matrix::Precision;
using warpgroup::Geometry;

constexpr int64_t kLimit = int64_t{1} << 31;
constexpr int64_t kSplits[] = {1, 2, 4, 8};  // planes of partial sums

// Fitted to 18 tilings each of 35 layers on an H200: the one with the least takes 1.4 % longer than the
// fastest.
template <class Tile>
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                    const Geometry& g) {
  constexpr double kLaunchUs = 2.9, kBegin = 3440, kSegment = 560, kLoads = 285;  // the others in cycles
  const double units = std::max(device.multiprocessors, 1);
  const double cycles = 1830 * (device.fp32_TFLOPs / units) / (51.0 / 132);  // in a microsecond
  const int64_t by_shared = device.shared_bytes_per_multiprocessor / (g.shared_bytes + 1024);
  const double fitting = static_cast<double>(std::clamp<int64_t>(by_shared, 1, Tile::kBlocks));
  const double blocks = static_cast<double>(g.blocks), places = static_cast<double>(g.places);
  const double resident = std::min(fitting, std::ceil(blocks / units));
  const double waves = std::max(1.0, blocks / (units * resident));
  const double rounds = waves < 2.5 ? std::ceil(waves) : waves + 0.6;
  const double taps = static_cast<double>(s.taps()), segments = static_cast<double>(g.segments);
  const double batches = static_cast<double>(g.batches);
  // Of a segment, then of a stage: products, the way of their operands, or what loads the source.
  const double products = taps * Tile::kGroups * Tile::kColumns * 1.06 / segments;
  const double alone = kSegment + products, together = resident * products;
  const double loads = kLoads * (1 + 0.25 * (resident - 1));
  const double bytes = taps * Tile::kGroups * warpgroup::kFilterTileBytes + places * 64;
  const double stage = std::max(batches * std::max({together, loads, alone}) +
                                    (segments - batches) * std::max(together, alone),
                                resident * bytes * 0.035) +
                       resident * places * 7.9;
  const double sums = static_cast<double>(Tile::kFilters * Tile::kColumns) / 32;
  const double block = static_cast<double>(g.plane_stages) * stage + kBegin + resident * sums * 0.5;
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  return kLaunchUs + std::max(rounds * block / cycles, memory);
}

template <Precision Kind, class Tile>
Plan plan_of(int index, const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
             const Geometry& g, int64_t segment_taps) {
  Plan plan;
  plan.candidate = "tensor";
  plan.kernel = kWarpgroup;
  plan.tiling = {{"precision", Kind},         {"tile", index},
                 {"planes", g.planes},        {"segment_taps", segment_taps},
                 {"filters", Tile::kFilters}, {"columns", Tile::kColumns}};
  if (g.planes > 1) plan.workspace_bytes = g.planes * s.results() * 4;
  plan.packing = "64 filters by taps";
  plan.packed_weight_bytes = s.groups * g.stages * s.taps() * g.m_tiles * warpgroup::kFilterTileBytes;
  plan.predicted_us = predicted_us<Tile>(problem, device, s, g) + sum_us(s, g.planes, problem.dtype, device);
  return plan;
}

template <class Tile>
bool is_possible(const Geometry& g, const ConvProblem& problem, const Sweep& s, const DeviceTraits& device) {
  const bool fills = g.blocks / g.planes >= device.multiprocessors;
  if (g.planes > 1 && (fills || g.stages < 2 * g.planes || !within_budget(s, g.planes, problem.dtype)))
    return false;
  const int64_t elements =
      g.images * s.groups * std::max(s.channels * s.source_plane(), s.filters * s.result_plane());
  const int64_t packed_tiles = s.groups * g.stages * s.taps() * g.m_tiles;
  const bool countable = g.blocks < kLimit && elements < kLimit &&
                         s.batch * g.image_places + g.class_places < kLimit &&
                         s.batch * s.result_plane() < kLimit && packed_tiles < kLimit / 256;
  // A stage's source comes while the one before is multiplied, a batch a segment.
  return countable && g.batches <= g.segments &&
         g.shared_bytes + warpgroup::kBarrierBytes <= device.shared_bytes_per_block;
}

// Appends the best way to use a tile.
template <Precision Kind, class Tile>
void append_tile(int index, const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                 std::vector<Plan>& plans) {
  std::vector<Plan> ways;
  const int64_t stages = divide_up(s.channels, warpgroup::stage_channels(Kind));
  for (const int64_t split : kSplits) {
    // As many planes as have stages, of as many stages each.
    const int64_t planes = divide_up(stages, divide_up(stages, split));
    for (const int64_t segment_taps : warpgroup::kSegmentTaps) {
      if (segment_taps > s.taps()) continue;
      const Geometry g = warpgroup::geometry_of<Kind, Tile>(s, planes, segment_taps);
      if (is_possible<Tile>(g, problem, s, device)) {
        ways.push_back(plan_of<Kind, Tile>(index, problem, device, s, g, segment_taps));
      }
    }
  }
  const auto best = std::min_element(
      ways.begin(), ways.end(), [](const Plan& a, const Plan& b) { return a.predicted_us < b.predicted_us; });
  if (best != ways.end()) plans.push_back(*best);
}

template <Precision Kind>
void append_tiles(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                  std::vector<Plan>& plans) {
  for (int index = 0; index < warpgroup::kTiles; ++index) {
    warpgroup::with_tile(
        index, [&](auto tile) { append_tile<Kind, decltype(tile)>(index, problem, device, s, plans); });
  }
}

}  // namespace

void append_warpgroup(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Sweep s = sweep_of(problem);
  if (device.backend != Backend::cuda || device.architecture != 90) return;
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
      if (problem.allow_tf32) append_tiles<matrix::kTf32>(problem, device, s, plans);
  }
}

}  // namespace convx::cuconv
