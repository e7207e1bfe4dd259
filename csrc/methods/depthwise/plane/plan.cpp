// Planning of plane: how many warps share a block's memory, and how the chunks are sliced among warps.
#include <algorithm>

#include "methods/depthwise/family.h"
#include "methods/depthwise/plane/geometry.h"

namespace convx::depthwise {
namespace {

constexpr int64_t kLargestChannels = int64_t{1} << 24;  // channel * lanes fits 31 bits
constexpr int64_t kBarrierBytes = 512;                  // static shared memory, rounded up

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return Support::no("runs on GPUs");
  if (problem.operation == Operation::weight_grad) return Support::no("computes forward and input_grad");
  if (problem.layout != Layout::nchw) return Support::no("needs the layout nchw");
  if (problem.dtype == DType::float64) return Support::no("has no float64");
  if (!problem.is_depthwise() || problem.out_channels != problem.in_channels) {
    return Support::no("needs groups = in_channels = out_channels");
  }
  if (problem.in_height != problem.in_width || (problem.in_width != 7 && problem.in_width != 14)) {
    return Support::no("needs planes of 7x7 or 14x14");
  }
  const int64_t filter = problem.filter_height;
  if (filter != problem.filter_width || (filter != 3 && filter != 5)) {
    return Support::no("needs a 3x3 or 5x5 filter");
  }
  if (problem.stride_h != 1 || problem.stride_w != 1) return Support::no("needs stride 1");
  if (problem.epilogue.is_more_than_bias()) return Support::no(kAddsBiasAlone);
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return Support::no("needs dilation 1");
  for (const int64_t padding :
       {problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right}) {
    if (padding != filter / 2) return Support::no("needs padding of half the filter on every side");
  }
  if (problem.in_channels >= kLargestChannels) return Support::no("needs fewer than 2^24 channels");
  if (problem.batch >= int64_t{1} << 30) return Support::no("needs a batch below 2^30");
  return Support::yes();
}

// Fraction of the floor at full load: findings/depthwise.md on an H200. Without copies that run ahead, the
// latency of each chunk shows.
double efficiency(const ConvProblem& problem, const DeviceTraits& device) {
  const bool half = element_size(problem.dtype) == 2, filter3 = problem.filter_height == 3;
  double value = problem.in_width == 14 ? (filter3 ? 0.89 : 0.87) : (filter3 ? 0.865 : 0.84);
  if (half) value = problem.in_width == 14 ? (filter3 ? 0.82 : 0.77) : (filter3 ? 0.8 : 0.71);
  return device.has_bulk_copy() ? value : 0.5 * value;
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const int side = static_cast<int>(problem.in_width), bytes = static_cast<int>(element_size(problem.dtype));
  const int filter = static_cast<int>(problem.filter_height);
  const plane::Tile tile = plane::tile_of(device.lanes, bytes, filter, side);
  const plane::Shares shares = plane::shares_of(problem, device.lanes);
  const int64_t warp_bytes =
      int64_t{tile.stages} * plane::planes_of_chunk(device.lanes, side) * side * side * bytes;
  const int64_t fitting = (device.shared_bytes_per_block - kBarrierBytes) / warp_bytes;
  const int64_t processors = std::max(device.multiprocessors, 1);
  // A block for each multiprocessor comes first where there is little to do.
  const int64_t most = std::max<int64_t>(1, std::min<int64_t>(tile.warps * 32 / device.lanes, fitting));
  const int64_t warps = std::clamp<int64_t>(shares.chunks / processors, 1, most);
  const int64_t blocks =
      std::clamp<int64_t>(device.shared_bytes_per_multiprocessor /
                              (warps * warp_bytes + kBarrierBytes + DeviceTraits::kSharedReserve),
                          1, tile.min_blocks * most / warps);
  const int64_t resident = processors * blocks * warps;
  const int64_t rounds = (shares.chunks + shares.period - 1) / shares.period;
  const int64_t slices = std::clamp<int64_t>(resident / shares.period, 1, rounds);

  Plan plan;
  plan.candidate = plane_family.name;
  plan.kernel = kPlane;
  plan.tiling = {{"lanes", device.lanes}, {"warps", warps}, {"stages", tile.stages}, {"slices", slices}};
  const double stream = std::max(problem.bytes() / (device.bandwidth_GBps * 1e3),
                                 problem.flops() / (device.fp32_TFLOPs * 1e6)) /
                        efficiency(problem, device);
  // Small problems: a lane's own instructions, at two cycles each, and bandwidth that too few
  // warps leave unused.
  const double lane_us = 49.0 * (filter * filter + 6) * 2 / device.busy_cycles_per_us();
  const double warps_used = static_cast<double>(std::min(shares.chunks, shares.period * slices));
  const double full =
      std::min(1.0, warps_used * device.lanes / 32 / (10.0 * static_cast<double>(processors)));
  plan.predicted_us = 2 + lane_us + stream / std::max(full, 0.02);
  plans.push_back(std::move(plan));
}

}  // namespace

const Family plane_family = {"plane", supports, append};

}  // namespace convx::depthwise
