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
using warpgroup::places_each;
using warpgroup::step_channels;

constexpr int64_t kLimit = int64_t{1} << 31;
constexpr int64_t kSplits[] = {1, 2, 4, 8};  // planes of partial sums

// Of a launch, in microseconds, and what its blocks do, in cycles: fitted to some 3100 ways of 13 layers of
// one tap and 13 of several, at batch 1, 8 and 32 in bfloat16 and TF32 on an H200. The way with the least
// takes 3 % longer than the fastest where there is one tap, else 1.4 %. tail and overlap are of waves.
struct Cost {
  double launch_us, begin, segment, latency, instruction, product, byte, place, sum, odd_sum, tail, overlap;
};
constexpr Cost kOneTap = {.72, 3170, 885, 716, .83, 2, .0203, 4.9, 59.3, 19.5, .436, .082};
constexpr Cost kTaps = {1.17, 3990, 581, 488, .854, 1.1, .0242, 8.21, 47.4, 16.1, .473, .157};

template <Precision Kind, class Tile>
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                    const Geometry& g) {
  const Cost& cost = s.taps() == 1 ? kOneTap : kTaps;
  const double units = std::max(device.multiprocessors, 1);
  const double cycles = 1830 * (device.fp32_TFLOPs / units) / (51.0 / 132);  // in a microsecond
  const int64_t by_shared = device.shared_bytes_per_multiprocessor / (g.shared_bytes + 1024);
  const double fitting = static_cast<double>(std::clamp<int64_t>(by_shared, 1, Tile::kBlocks));
  const double blocks = static_cast<double>(g.blocks);
  const double resident = std::min(fitting, std::ceil(blocks / units));
  const double waves = std::max(1.0, blocks / (units * resident));
  const double rounds =
      waves < 2.5 ? std::ceil(waves) - (std::ceil(waves) - waves) * cost.overlap : waves + cost.tail;
  const double taps = static_cast<double>(g.stage_taps), segments = static_cast<double>(g.segments);
  const double places = static_cast<double>(g.depth * g.places), batches = static_cast<double>(g.batches);
  // Of a segment, then of a stage: products, the way of their operands, or what loads the source.
  const double products = taps * Tile::kGroups * Tile::kColumns * cost.product / segments;
  const double alone = cost.segment + products, together = resident * products;
  constexpr double kInstructions = Tile::kLoaders / 32 * places_each<Kind, Tile>() * step_channels(Kind);
  const double loads = cost.latency + resident * kInstructions * cost.instruction;
  const double bytes = taps * Tile::kGroups * warpgroup::kFilterTileBytes + places * 64;
  const double stage = std::max(batches * std::max({together, loads, alone}) +
                                    (segments - batches) * std::max(together, alone),
                                resident * bytes * cost.byte) +
                       resident * places * cost.place;
  // Results of a thread: those of odd planes are written one by one.
  const double sums = static_cast<double>(Tile::kFilters * Tile::kSumPitch) / Tile::kThreads;
  const double sum = cost.sum + (s.result_plane() % 4 == 0 ? 0 : cost.odd_sum);
  const double block = static_cast<double>(g.plane_stages) * stage + cost.begin + resident * sums * sum;
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  return cost.launch_us + std::max(rounds * block / cycles, memory);
}

template <Precision Kind, class Tile>
Plan plan_of(int index, const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
             const Geometry& g, const warpgroup::Way& way) {
  Plan plan;
  plan.candidate = "tensor";
  plan.kernel = kWarpgroup;
  plan.tiling = {{"precision", Kind},
                 {"tile", index},
                 {"planes", way.planes},
                 {"depth", way.depth},
                 {"segment_taps", way.segment_taps},
                 {"filters", Tile::kFilters},
                 {"columns", Tile::kColumns}};
  if (g.planes > 1) plan.workspace_bytes = g.planes * s.results() * 4;
  plan.packing = "64 filters by taps";
  plan.packed_weight_bytes = s.groups * g.steps * s.taps() * g.m_tiles * warpgroup::kFilterTileBytes;
  plan.predicted_us =
      predicted_us<Kind, Tile>(problem, device, s, g) + sum_us(s, g.planes, problem.dtype, device);
  return plan;
}

template <class Tile>
bool is_possible(const Geometry& g, const ConvProblem& problem, const Sweep& s, const DeviceTraits& device) {
  const bool fills = g.blocks / g.planes >= device.multiprocessors;
  if (g.planes > 1 && (fills || g.stages < 2 * g.planes || !within_budget(s, g.planes, problem.dtype)))
    return false;
  const int64_t elements =
      g.images * s.groups * std::max(s.channels * s.source_plane(), s.filters * s.result_plane());
  const int64_t packed_tiles = s.groups * g.steps * s.taps() * g.m_tiles;
  const bool countable = g.blocks < kLimit && elements < kLimit &&
                         s.batch * g.image_places + g.class_places < kLimit &&
                         s.batch * s.result_plane() < kLimit && packed_tiles < kLimit / 256;
  // A stage's source comes while the one before is multiplied, a batch a segment.
  return countable && g.batches <= g.segments &&
         g.shared_bytes + warpgroup::kBarrierBytes <= device.shared_bytes_per_block;
}

template <class Body>
void for_each_way(const Sweep& s, int64_t steps, const Body& body) {
  for (const int64_t depth : warpgroup::kDepths) {
    if (depth > 1 && (s.taps() > 1 || depth > steps)) continue;
    const int64_t stages = divide_up(steps, depth);
    for (const int64_t split : kSplits) {
      // As many planes as have stages, of as many stages each.
      const int64_t planes = divide_up(stages, divide_up(stages, split));
      for (const int64_t segment_taps : warpgroup::kSegmentTaps) {
        // A stage of several steps is one segment.
        if (depth > 1 ? segment_taps == depth : segment_taps <= s.taps()) body({planes, depth, segment_taps});
      }
    }
  }
}

// Appends the best way to use a tile.
template <Precision Kind, class Tile>
void append_tile(int index, const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                 std::vector<Plan>& plans) {
  std::vector<Plan> ways;
  for_each_way(s, divide_up(s.channels, step_channels(Kind)), [&](const warpgroup::Way& way) {
    const Geometry g = warpgroup::geometry_of<Kind, Tile>(s, way);
    if (is_possible<Tile>(g, problem, s, device)) {
      ways.push_back(plan_of<Kind, Tile>(index, problem, device, s, g, way));
    }
  });
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
