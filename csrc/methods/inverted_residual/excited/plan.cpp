// Which tilings there are for a block with squeeze-and-excitation, and what they should cost.
#include <algorithm>
#include <string>

#include "methods/inverted_residual/banded/banded.h"
#include "methods/inverted_residual/excited/excited.h"

namespace convx::inverted_residual::excited {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

// The last product, and gates: what moves, and what each launch takes.
double predicted_us(const BlockProblem& p, const DeviceTraits& device, const Plan& filtering) {
  const int64_t elements =
      p.filtered_elements() + p.result_elements() + (p.has_residual ? p.input_elements() : 0);
  return filtering.predicted_us + 3 +
         std::max(2.0, 3.2 * static_cast<double>(elements) / (device.bandwidth_GBps * 1e3));
}

}  // namespace

Support supports(const BlockProblem& p, const DeviceTraits& device) {
  if (p.expanded_channels % 8 != 0 || p.expanded_channels > kMostDepth) {
    return Support::no("with squeeze-and-excitation it expands to a multiple of 8 channels, at most " +
                       std::to_string(kMostDepth) + ", not " + std::to_string(p.expanded_channels));
  }
  if (p.out_pixels() * p.expanded_channels >= kLimit) {
    return Support::no("places in an image need more than 31 bits");
  }
  const ExciteProblem of_gates = p.excitation();
  const gates::Geometry gating = gates::geometry_of(of_gates, gate_tiling_of(of_gates));
  if (gating.shared_bytes > device.shared_bytes_per_block) {
    return Support::no("squeezed_channels are too many for a block's shared memory: " +
                       std::to_string(p.squeezed_channels));
  }
  if (banded::candidates(p, device).empty()) {
    return Support::no(
        "with squeeze-and-excitation it has no tile for so many input channels, or for a first image whose "
        "rows begin anywhere or are planes, as in " +
        describe(p));
  }
  return Support::yes();
}

std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  std::vector<Plan> plans;
  for (const Plan& filtering : banded::candidates(p, device)) {
    Tiling t{banded::tiling_of(filtering), {32, 1, 1}};
    const int64_t pairs = divide_up(p.out_channels, shallow::kPairFilters);
    for (t.product.block_pairs = pairs;; t.product.block_pairs = 1) {
      const Geometry one = geometry_of(p, t);
      const int64_t places = shallow::kMostBlocks * std::max(device.multiprocessors, 1);
      t.product.pixel_blocks = shallow::pixel_blocks_of(one.projecting, places);
      const Geometry g = geometry_of(p, t);
      if (g.projecting.shared_bytes <= device.shared_bytes_per_block) {
        Plan plan = filtering;
        plan.candidate = kCandidate;
        plan.tiling.push_back({"block_pairs", t.product.block_pairs});
        plan.tiling.push_back({"pixel_blocks", t.product.pixel_blocks});
        plan.packing = "excited " + filtering.packing;
        plan.packed_weight_bytes = g.packed_bytes;
        plan.workspace_bytes = g.workspace_bytes;
        plan.predicted_us = predicted_us(p, device, filtering);
        plans.push_back(std::move(plan));
      }
      if (t.product.block_pairs == 1) break;
    }
  }
  return plans;
}

}  // namespace convx::inverted_residual::excited
