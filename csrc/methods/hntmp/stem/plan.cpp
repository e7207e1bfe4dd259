// Which tilings the stem kernel has for a problem, and what they should cost.
#include <algorithm>
#include <cmath>

#include "methods/hntmp/stem/stem.h"
#include "methods/packing/crsk.h"
#include "plan/append_fastest.h"

namespace convx::hntmp::stem {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks, and of places in 32 bits
constexpr int64_t kMostWarpsDown = 8;
constexpr size_t kMostOfShape = 2;  // plans

bool is_stem(const ConvProblem& p, const Sweep& s) {
  return p.operation == Operation::forward && p.groups == 1 && p.dtype != DType::float64 &&
         s.source_channels <= kMostChannels && s.source_channels * s.taps() <= kMostTaps;
}

// Instructions of all warps of a block: an issue slot each.
double block_instructions(const Sweep& s, const Tiling& t, const Geometry& g, int64_t element_bytes) {
  const double lanes = static_cast<double>(t.lanes), pixels = static_cast<double>(t.pixels);
  const double taps = static_cast<double>(g.taps), per_piece = 16.0 / static_cast<double>(element_bytes);
  const double row_pieces = static_cast<double>(g.window_width) / per_piece + 2;
  const double pieces = static_cast<double>(s.source_channels * g.window_height) * row_pieces;
  const double staging =
      pieces * (25 + 9 * per_piece) / lanes + taps * static_cast<double>(t.block_channels) * 7 / lanes;
  const double turns = static_cast<double>(t.warps_down * divide_up(s.result_channels, t.filters_together()));
  return staging +
         turns * (taps * (kFilters * pixels + pixels + kFilters / 4 + 5) + 6 * kFilters * pixels + 40);
}

double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s, const Tiling& t,
                    const Geometry& g) {
  const double processors = std::max(device.multiprocessors, 1), lanes = static_cast<double>(t.lanes);
  const bool cuda = device.backend == Backend::cuda;
  // As hntmp's other kernels count: cycles in which all four schedulers issue an instruction.
  const double peak = device.fp32_TFLOPs / 0.78 * 1e6 / (2 * processors);
  const double cycles_per_us = peak / (4 * lanes);
  constexpr double kRegisters = 104;
  const double threads = static_cast<double>(g.threads);
  const double fitting = std::max(
      1.0, std::floor(std::min({device.registers_per_multiprocessor / (kRegisters * threads),
                                device.threads_per_multiprocessor / threads,
                                static_cast<double>(device.shared_bytes_per_multiprocessor) /
                                    static_cast<double>(g.shared_bytes + DeviceTraits::kSharedReserve)})));
  const double of_processor = std::ceil(static_cast<double>(g.blocks) / processors);
  const double warps = std::min(fitting, of_processor) * threads / lanes;
  // A warp alone on a scheduler waits for its own loads.
  const double waits = warps < 4 ? 2.0 * 4 / warps : warps < 8 ? 1.5 : warps < 16 ? 1.2 : 1.1;
  const double issue = of_processor * block_instructions(s, t, g, element_size(problem.dtype)) / 4 * waits;
  const double latency = 2500 * std::ceil(of_processor / fitting);
  const double us = (cuda ? 1.0 : 4.0) + (issue + latency) / cycles_per_us;
  return std::max(us, problem.bytes() / (device.bandwidth_GBps * 1e3) + 2);
}

Plan plan_of(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s, const Tiling& t,
             const Geometry& g) {
  Plan plan;
  plan.candidate = kCandidate;
  plan.tiling = {
      {"lanes", t.lanes},           {"lanes_across", t.lanes_across}, {"pixels", t.pixels},
      {"warps_down", t.warps_down}, {"filter_warps", t.filter_warps}, {"block_channels", t.block_channels}};
  plan.packing = packing::crsk_name(problem, t.block_channels);
  plan.packed_weight_bytes = packing::crsk_bytes(problem, t.block_channels);
  plan.predicted_us = predicted_us(problem, device, s, t, g);
  return plan;
}

}  // namespace

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  const Sweep s = sweep_of(problem);
  std::vector<Plan> plans;
  if (!is_stem(problem, s)) return plans;
  const bool channels_last = problem.layout == Layout::nhwc;
  const int64_t channels = std::min(round_up(s.result_channels, kFilters), kMostBlockChannels);
  for (const Shape& shape : kShapes) {
    std::vector<Plan> some;
    for (int64_t warps_down = 1; warps_down <= kMostWarpsDown; warps_down *= 2) {
      for (int64_t filter_warps = 1; filter_warps <= channels / kFilters; filter_warps *= 2) {
        const Tiling t{device.lanes, shape.lanes_across, shape.pixels, channels_last,
                       warps_down,   filter_warps,       channels};
        if (filter_warps > 1 && filter_warps / 2 * t.filters_together() >= channels) continue;
        const Geometry g = geometry_of(s, t);
        if (g.threads > kMostThreads || g.blocks >= kLimit) continue;
        if (g.shared_bytes > device.shared_bytes_per_block) continue;
        some.push_back(plan_of(problem, device, s, t, g));
      }
    }
    append_fastest(plans, std::move(some), kMostOfShape);
  }
  return plans;
}

}  // namespace convx::hntmp::stem
