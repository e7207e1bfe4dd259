// The ways to run a product on a deep kernel.
#pragma once
#include <utility>
#include <vector>

#include "methods/deep/cost.h"
#include "plan/append_fastest.h"

namespace convx::deep {

// Appends the fastest to plans, each as `like` has it. taps: the depth is that of several, or of one that
// meets other pixels than its own.
inline void append_plans(const ConvProblem& problem, const DeviceTraits& device,
                         const matrix::Product& product, bool taps, const Plan& like,
                         std::vector<Plan>& plans) {
  constexpr size_t kMostPlans = 3;
  const matrix::Precision precision = matrix::precision_of(problem, device);
  const int64_t element = element_size(problem.dtype), most_ranks = kPortableClusterBlocks;
  std::vector<Plan> some;
  for (int64_t fragments = 1; fragments <= kMostFragments; ++fragments) {
    for (int64_t ranks = 1; ranks <= (device.has_clusters() ? most_ranks : 1); ranks *= 2) {
      const Tiling t{device.lanes, fragments, ranks, has_planes(problem)};
      if (!has_kernel(fragments, t.planes, taps)) continue;
      if (t.planes && !taps && problem.in_height * problem.in_width % fragments != 0) continue;
      const Geometry g = geometry_of(product, t, element);
      if (g.shared_bytes > device.shared_bytes_per_block || g.blocks > INT32_MAX) continue;
      if (ranks > 1 && (ranks - 1) * kWarps >= g.step_pairs) continue;  // some would have nothing
      Plan plan = like;
      plan.tiling = {
          {"precision", precision}, {"fragments", fragments}, {"ranks", ranks}, {"lanes", device.lanes}};
      plan.packed_weight_bytes = g.pairs * g.step_pairs * 2048;
      plan.predicted_us = kernel_us(device, product, precision, taps, t, g, problem.bytes());
      if (problem.operation == Operation::forward) trust(plan, device, kDoubt);
      some.push_back(std::move(plan));
    }
  }
  append_fastest(plans, std::move(some), kMostPlans);
}

}  // namespace convx::deep
