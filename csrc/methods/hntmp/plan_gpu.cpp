// Which tiles a problem can use on a GPU, how channels are shared out, and what that should cost.
#include <algorithm>
#include <cmath>

#include "methods/hntmp/candidates.h"
#include "methods/hntmp/cost.h"
#include "methods/hntmp/forms/forms.h"
#include "methods/hntmp/geometry.h"
#include "methods/hntmp/stem/stem.h"
#include "methods/hntmp/stem_tensor/stem_tensor.h"
#include "methods/packing/crsk.h"
#include "plan/append_fastest.h"

namespace convx::hntmp {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of a block's 32-bit offsets, and of the number of blocks
constexpr int64_t kLargestFilter = 7;

// What all kernels but the stem's need.
bool has_taps(const ConvProblem& problem) {
  return problem.filter_height <= kLargestFilter && problem.filter_width <= kLargestFilter;
}

bool fits_tile(int index, const Sweep& s, const ConvProblem& problem) {
  if (!has_dtype(index, problem.dtype)) return false;
  const Tile tile = tile_of(index);
  if (tile.any()) return true;
  if (s.dilation_h != 1 || s.dilation_w != 1) return false;
  if (s.stride_h != tile.stride || s.stride_w != tile.stride || s.filter_width != tile.filter_width)
    return false;
  if (tile.filter_height != 0 && s.filter_height != tile.filter_height) return false;
  const int64_t element_bytes = element_size(problem.dtype);
  if (tile.staging == Staging::window) {
    return !tile.pairs(element_bytes) || problem.layout == Layout::nhwc || s.source_width % 2 == 0;
  }
  // Only the padding around the very columns that there are is left out.
  const bool same_width = s.source_width == tile.width && s.result_width == tile.width && s.left == 1;
  if (tile.staging == Staging::rows) return same_width && s.top == 1;
  return same_width && s.top == 1 && s.source_height == tile.height && s.result_height == tile.height &&
         (problem.layout == Layout::nhwc ||
          s.source_channels * tile.pixels() * element_bytes % 16 == 0);  // pieces from any image on
}

// Shared memory, offsets, and no lanes without filters where fewer would do.
bool is_possible(const Geometry& g, int index, const Sweep& s, const ConvProblem& problem,
                 const DeviceTraits& device) {
  // Filters of a stage's channels, and of all, begin and end with whole pieces of 16 bytes; images as well.
  const int64_t element_bytes = element_size(problem.dtype);
  const int64_t filter_bytes = g.block_channels() * s.taps() * element_bytes;
  if (g.slots() * filter_bytes % 16 != 0 || s.source_channels * filter_bytes % 16 != 0) return false;
  if (g.tile.staging == Staging::image && g.slots() * g.tile.pixels() * element_bytes % 16 != 0) return false;
  // More slots take more shared memory, so that the lean tile may need lanes without filters.
  if (index != kAnyLean && g.lane_filters > 2 && g.block_channels() / 2 >= s.result_channels) return false;
  if (g.warps > 1 && g.warps / 2 * g.splits >= g.channel_groups) return false;
  if (g.splits > 1 && (g.splits * g.warps > g.channel_groups || problem.output_elements() >= kLimit ||
                       problem.input_elements() >= kLimit)) {
    return false;
  }
  return g.shared_bytes <= device.shared_bytes_per_block && g.blocks < kLimit;
}

Plan plan_of(const Geometry& g, int index, const Sweep& s, const ConvProblem& problem) {
  Plan plan;
  plan.candidate = std::string(g.tile.candidate) + (g.splits > 1 ? "_split" : "");
  plan.kernel = index;
  plan.tiling = {{"lanes", g.lanes},          {"lane_filters", g.lane_filters},
                 {"filters", g.tile.filters}, {"rows", g.tile.height},
                 {"columns", g.tile.width},   {"warps", g.warps},
                 {"splits", g.splits},        {"block_channels", g.block_channels()}};
  if (g.splits > 1) {
    plan.workspace_bytes = g.splits * s.results() * (problem.dtype == DType::float64 ? 8 : 4);
  }
  plan.packing = packing::crsk_name(problem, g.block_channels());
  plan.packed_weight_bytes = packing::crsk_bytes(problem, g.block_channels());
  return plan;
}

// Every geometry that can run, until one is enough: visit(geometry) says whether it is.
template <class Visit>
bool for_each_geometry(int index, const Sweep& s, const ConvProblem& problem, const DeviceTraits& device,
                       const Visit& visit) {
  for (int64_t lane_filters = 2; lane_filters <= device.lanes / 2; lane_filters *= 2) {
    for (int64_t warps = 1; warps * device.lanes <= kMostThreads; warps *= 2) {
      for (int64_t splits = 1; splits <= 8; splits *= 2) {
        const Geometry g = geometry_of(s, index, problem.dtype, device.lanes, lane_filters, warps, splits);
        if (!is_possible(g, index, s, problem, device)) continue;
        // More blocks than the device holds at once have nothing to gain from a split.
        if (splits > 1 && g.blocks / splits >= 2 * device.multiprocessors) continue;
        if (visit(g)) return true;
      }
    }
  }
  return false;
}

struct Choice {
  Geometry geometry;
  double us;
};

// The fastest geometries become plans.
void append_tile(int index, const Sweep& s, const ConvProblem& problem, const DeviceTraits& device,
                 std::vector<Plan>& plans) {
  std::vector<Choice> whole, split;
  for_each_geometry(index, s, problem, device, [&](const Geometry& g) {
    (g.splits > 1 ? split : whole).push_back({g, predicted_us(g, s, problem, device)});
    return false;
  });
  const auto append = [&](std::vector<Choice>& choices, size_t most) {
    keep_fastest(choices, most, &Choice::us);
    for (const Choice& choice : choices) {
      plans.push_back(plan_of(choice.geometry, index, s, problem));
      plans.back().predicted_us = choice.us;
    }
  };
  append(whole, 3);
  append(split, 1);
}

bool has_tile(const Sweep& sweep, const ConvProblem& problem, const DeviceTraits& device) {
  for (int index = 0; index < kTiles && has_taps(problem); ++index) {
    const auto enough = [](const Geometry&) { return true; };
    if (fits_tile(index, sweep, problem) && for_each_geometry(index, sweep, problem, device, enough))
      return true;
  }
  return false;
}

}  // namespace

Support gpu_supports(const ConvProblem& problem, const DeviceTraits& device) {
  const Sweep s = gpu_sweep_of(problem);
  for (const int64_t size : {s.source_height, s.source_width, s.result_height, s.result_width, s.stride_h,
                             s.stride_w, s.dilation_h, s.dilation_w, std::abs(s.top), std::abs(s.left)}) {
    if (size >= kLimit / 128) return Support::no("its GPU kernels need sizes below 2^24");
  }
  if (s.source_plane() >= kLimit || s.result_plane() >= kLimit) {
    return Support::no("its GPU kernels need planes of fewer than 2^31 elements");
  }
  if (s.source_channels >= kLimit / 1024 || s.result_channels >= kLimit / 1024 || s.groups >= kLimit / 1024 ||
      s.groups * std::max(s.source_channels, s.result_channels) >= kLimit) {
    return Support::no("its GPU kernels need fewer than 2^21 channels");
  }
  if (has_tile(s, problem, device) || !gpu_candidates(problem, device).empty()) return Support::yes();
  if (!has_taps(problem)) {
    return Support::no("its GPU kernels need filters of up to 7x7, not " +
                       std::to_string(problem.filter_height) + "x" + std::to_string(problem.filter_width) +
                       ", or an input of up to " + std::to_string(stem::kMostChannels) + " channels");
  }
  return Support::no("its GPU kernels need the window of a dilated filter within shared memory (" +
                     std::to_string(device.shared_bytes_per_block) + " bytes) and fewer than 2^31 blocks");
}

std::vector<Plan> gpu_candidates(const ConvProblem& problem, const DeviceTraits& device) {
  const Sweep sweep = gpu_sweep_of(problem);
  std::vector<Plan> plans;
  for (int index = 0; index < kTiles && has_taps(problem); ++index) {
    if (!fits_tile(index, sweep, problem)) continue;
    // The general kernel is for what no other can do.
    if (tile_of(index).any() && !plans.empty()) continue;
    append_tile(index, sweep, problem, device, plans);
  }
  for (const auto& more : {stem::candidates(problem, device), stem_tensor::candidates(problem, device),
                           forms::candidates(problem, device)}) {
    plans.insert(plans.end(), more.begin(), more.end());
  }
  return plans;
}

}  // namespace convx::hntmp
