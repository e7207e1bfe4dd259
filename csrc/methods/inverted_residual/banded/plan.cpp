// Which tilings the kernel of banded products has for a block, and what they should cost.
#include <algorithm>
#include <cmath>

#include "methods/inverted_residual/banded/banded.h"
#include "methods/inverted_residual/ranks.h"
#include "plan/append_fastest.h"

namespace convx::inverted_residual::banded {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks
constexpr size_t kMostOfShape = 400;          // plans

// Blocks on a multiprocessor; 0 where one is too large.
int64_t fitting(const DeviceTraits& device, const Geometry& g) {
  constexpr int64_t kRegisters = 128;  // of a thread
  if (g.shared_bytes > device.shared_bytes_per_block) return 0;
  return std::max<int64_t>(
      1, std::min(device.registers_per_multiprocessor / (kRegisters * g.warps * 32),
                  device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve)));
}

// By instructions that all warps of a block issue, and by what a block waits for by itself.
double predicted_us(const BlockProblem& p, const DeviceTraits& device, const Tiling& t, const Geometry& g) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int stride = static_cast<int>(p.stride);
  const double pairs = static_cast<double>(g.chunk) / 16, warps = static_cast<double>(g.warps);
  const double rows = rows_of_warp(shape, stride), depth_steps = shape.depth_steps;
  const double expand = pairs * (rows * (2 * depth_steps + 10) + 2 * depth_steps + 4);
  const double turns = std::ceil(static_cast<double>(g.chunk) / 2 / warps);
  const double filtering = turns * (2 * p.filter * (stride == 1 ? 7 : 5) + 24);
  const double project = pairs * (shape.tiles_down * (1 + 2 * shape.pairs) + shape.pairs);
  const double steps = static_cast<double>(g.rank_chunks + 2);
  const double issue =
      warps * (static_cast<double>(g.rank_chunks) * (expand + filtering + project) + steps * 60) / 4;
  const double of_processor = std::ceil(static_cast<double>(g.blocks) / std::max(device.multiprocessors, 1));
  const double resident = std::min(static_cast<double>(fitting(device, g)), of_processor);
  const double alone = 3500 + steps * 900 + issue * 1.5 + (t.ranks > 1 ? 1500 : 0);
  const double cycles = std::ceil(of_processor / resident) * std::max(alone, resident * issue * 1.8);
  return std::max(1.5 + cycles / device.busy_cycles_per_us(), p.bytes() / (device.bandwidth_GBps * 1e3) + 2);
}

void append_plan(const BlockProblem& p, const DeviceTraits& device, Tiling t, std::vector<Plan>& plans) {
  const Geometry g = geometry_of(p, t);
  if (fitting(device, g) < 1 || g.blocks >= kLimit) return;
  Plan plan;
  plan.candidate = kCandidate;
  plan.tiling = {{"shape", t.shape}, {"tile_height", t.tile_height}, {"ahead", t.ahead}, {"ranks", t.ranks}};
  plan.packing = "bands of " + std::to_string(g.chunk) + ", depth " +
                 std::to_string(kShapes[p.stride - 1][t.shape].depth_steps);
  plan.packed_weight_bytes = g.packed_bytes;
  plan.predicted_us = predicted_us(p, device, t, g);
  plans.push_back(std::move(plan));
}

// Of a tile's height: all of the image, or equal parts of it.
void append_heights(const BlockProblem& p, const DeviceTraits& device, Tiling t, std::vector<Plan>& plans) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int64_t parts = divide_up(p.out_height, static_cast<int64_t>(shape.most_rows));
  for (int64_t more = 0; more < 2; ++more) {
    t.tile_height = divide_up(p.out_height, parts + more);
    if (more > 0 && t.tile_height == divide_up(p.out_height, parts)) break;
    t.ranks = 1;
    const Geometry g = geometry_of(p, t);
    if (g.warps_down * divide_up(g.out_pairs, static_cast<int64_t>(shape.pairs)) > g.warps) continue;
    for (const int64_t ranks : possible_ranks(device, g.chunks, g.blocks)) {
      t.ranks = ranks;
      for (t.ahead = 1; t.ahead <= 2; ++t.ahead) append_plan(p, device, t, plans);
    }
  }
}

}  // namespace

std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  std::vector<Plan> plans;
  if (p.expand_filter > 1) return plans;
  for (int64_t at = 0; at < kShapeCounts[p.stride - 1]; ++at) {
    const Shape& shape = kShapes[p.stride - 1][at];
    if (p.channels > shape.depth_steps * kMatrix) continue;
    std::vector<Plan> some;
    Tiling t;
    t.shape = at;
    append_heights(p, device, t, some);
    append_fastest(plans, std::move(some), kMostOfShape);
  }
  return plans;
}

}  // namespace convx::inverted_residual::banded
