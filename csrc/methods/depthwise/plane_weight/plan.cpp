// Planning of plane_weight: warps of a block, bound by shared memory, and the slices of the batch.
#include "../family.h"
#include "../weight_slices.h"
#include "geometry.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  const std::string refusal = fast_weight_grad_refusal(problem, device, Layout::nchw, 5);
  if (!refusal.empty()) return Support::no(refusal);
  const int64_t side = problem.in_width, padding = problem.filter_width / 2;
  if (problem.in_height != side || (side != 7 && side != 14))
    return Support::no("needs planes of 7x7 or 14x14");
  if (problem.stride_h != 1) return Support::no("needs stride 1");
  if (problem.padding_top != padding || problem.padding_bottom != padding ||
      problem.padding_left != padding || problem.padding_right != padding) {
    return Support::no("needs padding of half the filter on every side");
  }
  if (problem.batch >= int64_t{1} << 30) return Support::no("needs a batch below 2^30");
  if (plane_weight_shared_bytes(problem, device.lanes, 1) > device.shared_bytes_per_block) {
    return Support::no("needs more shared memory than a block has");
  }
  return Support::yes();
}

// Fraction of the floor on an H200 (findings/depthwise.md).
double efficiency(const ConvProblem& problem, bool bulk) {
  const bool half = element_size(problem.dtype) == 2, large = problem.in_width == 14;
  double value = half ? (large ? 0.87 : 0.76) : (large ? 1.0 : 0.94);
  if (problem.filter_height == 5) value *= half ? (large ? 0.82 : 0.93) : 0.95;
  return bulk ? value : 0.5 * value;  // without, nothing is in flight during the sums
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const int64_t image_bytes =
      problem.in_channels * problem.in_height * problem.in_width * element_size(problem.dtype);
  const bool bulk = image_bytes % 16 == 0;
  const int64_t lanes = device.lanes,
                groups = divide_up(problem.in_channels, planes_of_warp(problem.in_width, lanes));
  const double stream = stream_us(problem, device, efficiency(problem, bulk && device.has_bulk_copy()));
  const double slice_us = problem.weight_elements() * 8.0 / (device.bandwidth_GBps * 1e3);
  Plan best;
  for (int64_t warps = 1; warps <= kPlaneWeightThreads / lanes && warps <= problem.batch; warps *= 2) {
    const int64_t shared = plane_weight_shared_bytes(problem, lanes, warps);
    // Two blocks a multiprocessor, so that one fills its stages while the other sums its warps up.
    if (warps > 1 &&
        shared > std::max(device.shared_bytes_per_multiprocessor, device.shared_bytes_per_block) / 2 -
                     DeviceTraits::kSharedReserve)
      break;
    const int64_t per_multiprocessor =
        std::max(device.shared_bytes_per_multiprocessor, device.shared_bytes_per_block);
    const int64_t blocks = std::min(per_multiprocessor / (shared + DeviceTraits::kSharedReserve),
                                    device.registers_per_multiprocessor / (128 * warps * lanes));
    const int64_t resident = std::max(device.multiprocessors, 1) * std::max<int64_t>(1, blocks);
    const Slices slices =
        choose_slices({groups, divide_up(problem.batch, warps), resident, 1, 1.2, stream, slice_us});
    if (!best.tiling.empty() && slices.predicted_us >= best.predicted_us) continue;
    best.candidate = "plane_weight";
    best.kernel = kPlaneWeight;
    best.tiling = {
        {"lanes", lanes}, {"threads", warps * lanes}, {"slices", slices.count}, {"bulk", bulk ? 1 : 0}};
    best.workspace_bytes = slices.count == 1 ? 0 : slices.count * problem.weight_elements() * 4;
    best.predicted_us = slices.predicted_us;
  }
  plans.push_back(best);
}

}  // namespace

const Family plane_weight_family = {"plane_weight", supports, append};

}  // namespace convx::depthwise
