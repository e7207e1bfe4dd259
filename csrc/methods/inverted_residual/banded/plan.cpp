// Which tilings the kernel of banded products has for a block, and what they should cost.
#include <algorithm>
#include <cmath>

#include "methods/inverted_residual/banded/banded.h"
#include "methods/inverted_residual/ranks.h"
#include "plan/append_fastest.h"

namespace convx::inverted_residual::banded {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks
constexpr size_t kMostOfShape = 2;            // plans

// Blocks on a multiprocessor; 0 where one is too large.
int64_t fitting(const DeviceTraits& device, const Geometry& g) {
  constexpr int64_t kRegisters = 128;  // of a thread
  if (g.shared_bytes > device.shared_bytes_per_block) return 0;
  return std::max<int64_t>(
      1, std::min(device.registers_per_multiprocessor / (kRegisters * g.warps * 32),
                  device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve)));
}

// By instructions that all warps of a block issue, and by what a warp waits for. Fitted to 144 plans of
// MobileNetV2's and MnasNet's blocks at batch 1 and 64 on an H200, to 9 % in the mean.
double predicted_us(const BlockProblem& p, const DeviceTraits& device, const Tiling& t, const Geometry& g) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int stride = static_cast<int>(p.stride);
  const double pairs = static_cast<double>(g.chunk) / 16, warps = static_cast<double>(g.warps);
  const double rows = rows_of_warp(shape, stride), depth_steps = shape.depth_steps;
  const double expand = pairs * (rows * (2 * depth_steps + 10) + 2 * depth_steps + 4);
  const double turns = std::ceil(static_cast<double>(g.chunk) / 2 / warps);
  const double filtering = turns * (2 * static_cast<double>(p.filter) * (stride == 1 ? 7 : 5) + 24);
  // Of a pair of fragments, or a channel of a group of rows, eight values a lane.
  const double smooth = p.activation == Activation::silu ? 40 : 0;
  const double activations = smooth * (pairs * rows + 2 * turns * (stride == 1 ? 1.0 : 0.5));
  const double project = pairs * (shape.tiles_down * (1 + 2 * shape.pairs) + shape.pairs);
  const double steps = static_cast<double>(g.rank_chunks + 2);
  const double of_warp =
      static_cast<double>(g.rank_chunks) * (2.4 * expand + filtering + activations + 4 * project);
  const double issue = warps * (of_warp + steps * 126) / 4;
  const double alone = 1370 + steps * 200 + 4.5 * of_warp + 257 * rows * depth_steps +
                       (t.ranks > 1 && end_of(p) == End::project ? 4200 : 0);
  const double of_processor = std::ceil(static_cast<double>(g.blocks) / std::max(device.multiprocessors, 1));
  const double resident = std::min(static_cast<double>(fitting(device, g)), of_processor);
  const double cycles = std::ceil(of_processor / resident) * std::max(alone, resident * issue * 1.95);
  const int64_t elements = end_of(p) == End::project
                               ? p.input_elements() + p.result_elements() + p.weight_elements()
                               : p.input_elements() + p.filtered_elements();
  const double bytes = static_cast<double>(elements * element_size(p.dtype));
  return std::max(1.5 + cycles / device.busy_cycles_per_us(), bytes / (device.bandwidth_GBps * 1e3) + 2);
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

// Whether the depth is no more than a lane's, and the image's rows lie where results of chunks will.
bool fits_patches(const BlockProblem& p, const Shape& shape) {
  const int stride = static_cast<int>(p.stride), filter = static_cast<int>(p.filter);
  const PatchGeometry g = patch_geometry_of(p, warps_of(shape, filter, stride) * rows_of_warp(shape, stride));
  return g.runs.steps <= shape.depth_steps && g.bytes <= 2 * shape.chunk * filtered_pitch(shape, stride);
}

}  // namespace

std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  std::vector<Plan> plans;
  const bool is_of_patches = p.expand_filter > 1;
  if (is_of_patches && !has_patch_runs(p)) return plans;
  for (int64_t at = 0; at < kShapeCount; ++at) {
    const Shape& shape = kShapes[p.stride - 1][at];
    const int filter = static_cast<int>(p.filter), stride = static_cast<int>(p.stride);
    if (!has_end(end_of(p), filter, stride, static_cast<int>(at))) continue;
    if (is_of_patches ? !has_patches(filter, stride, static_cast<int>(at)) || !fits_patches(p, shape)
                      : p.channels > shape.depth_steps * kMatrix) {
      continue;
    }
    std::vector<Plan> some;
    Tiling t;
    t.shape = at;
    append_heights(p, device, t, some);
    append_fastest(plans, std::move(some), kMostOfShape);
  }
  return plans;
}

}  // namespace convx::inverted_residual::banded
