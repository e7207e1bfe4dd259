// Which tilings the stem kernel on matrix units has for a problem, and what they should cost.
#include <algorithm>
#include <cmath>

#include "methods/hntmp/stem_tensor/stem_tensor.h"
#include "methods/packing/crsk.h"
#include "methods/short_epilogue.h"
#include "plan/append_fastest.h"

namespace convx::hntmp::stem_tensor {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks, and of places in 32 bits
constexpr int64_t kMostSteps = 16, kMostTileWidth = 128;
constexpr size_t kMostPlans = 3;

// Rows of the image in whole pieces, pixels whose runs of values all begin at even places.
bool is_one(const ConvProblem& p, const Sweep& s, const DeviceTraits& device) {
  return p.operation == Operation::forward && p.groups == 1 && element_size(p.dtype) == 2 &&
         p.layout == Layout::nhwc && matrix::has_units(device) && has_short_epilogue(p) &&
         s.source_channels <= kMostChannels && s.dilation_w == 1 && s.result_channels % 4 == 0 &&
         s.source_width * s.source_channels % kPieceValues == 0 && s.stride_w * s.source_channels % 2 == 0;
}

// Fitted to 69 plans of 23 problems drawn at random, on an H200, to 13 % in the mean.
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Tiling& t,
                    const Geometry& g) {
  const double rows = static_cast<double>(t.block_channels / kRowFilters),
               steps = static_cast<double>(g.runs.steps);
  const double fragments = fragments_of(t.block_channels), lanes = static_cast<double>(t.lanes);
  const double warps = static_cast<double>(t.warps);
  const double finishing = problem.epilogue.activation <= Activation::relu6 ? 5 : 9;  // of a value
  // A warp's instructions for its fragments, of which a read of shared memory is worth four, and those of all
  // warps before.
  const double turn = steps * (4.3 * (rows + 1 + 2 * fragments) + fragments * (2 + rows)) +
                      rows * fragments * 4 * finishing + 60;
  const double turns = std::ceil(static_cast<double>(t.tile_height * g.row_fragments) / (fragments * warps));
  const double staging =
      rows * steps * 128 / lanes * 40 + static_cast<double>(g.window_height * g.pieces) / lanes * 14 + 100;
  const double block = 1.5 * staging + turns * warps * turn;
  const double processors = std::max(device.multiprocessors, 1);
  const double of_processor = std::ceil(static_cast<double>(g.blocks) / processors);
  constexpr double kRegisters = 112;
  const double fitting = std::max(
      1.0, std::floor(std::min(device.registers_per_multiprocessor / (kRegisters * warps * lanes),
                               static_cast<double>(device.shared_bytes_per_multiprocessor) /
                                   static_cast<double>(g.shared_bytes + DeviceTraits::kSharedReserve))));
  // Of few warps each waits for its own loads.
  const double waits = std::max(1.0, 16.0 / (std::min(fitting, of_processor) * warps));
  const double cycles = of_processor * block / 4 * 2.3 * waits + 2500 * std::ceil(of_processor / fitting);
  return std::max(cycles / device.busy_cycles_per_us(),
                  2.5 + problem.bytes() / (device.bandwidth_GBps * 1e3));
}

Plan plan_of(const ConvProblem& problem, const DeviceTraits& device, const Tiling& t, const Geometry& g) {
  Plan plan;
  plan.candidate = kCandidate;
  plan.tiling = {{"lanes", t.lanes},
                 {"tile_height", t.tile_height},
                 {"tile_width", t.tile_width},
                 {"warps", t.warps},
                 {"block_channels", t.block_channels}};
  plan.packing = packing::crsk_name(problem, t.block_channels);
  plan.packed_weight_bytes = packing::crsk_bytes(problem, t.block_channels);
  plan.predicted_us = predicted_us(problem, device, t, g);
  trust(plan, device, 1.3);
  return plan;
}

}  // namespace

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  const Sweep s = sweep_of(problem);
  std::vector<Plan> plans, some;
  if (!is_one(problem, s, device)) return plans;
  const int64_t columns = device.lanes / 4;
  const int64_t across = divide_up(s.result_width, kMostTileWidth);
  const int64_t tile_width = round_up(divide_up(s.result_width, across), columns);
  const int64_t block_channels = s.result_channels > 32 ? 64 : 32;
  for (int64_t tile_height = 1; tile_height <= 16; tile_height *= 2) {
    if (tile_height / 2 >= s.result_height) break;
    for (int64_t warps = 2; warps <= kMostWarps; ++warps) {
      const Tiling t{device.lanes, tile_height, tile_width, warps, block_channels};
      const Geometry g = geometry_of(s, t);
      if (g.runs.steps > kMostSteps || g.blocks >= kLimit) continue;
      if (g.shared_bytes > device.shared_bytes_per_block) continue;
      some.push_back(plan_of(problem, device, t, g));
    }
  }
  append_fastest(plans, std::move(some), kMostPlans);
  return plans;
}

}  // namespace convx::hntmp::stem_tensor
