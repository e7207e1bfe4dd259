#include <algorithm>

#include "methods/filter2d/rotation/tiles.h"

namespace convx::filter2d {

void append_rotation(const FilterProblem& p, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 || p.dilation_w != 1) return;
  if (rotation::tap_bytes_of(p) > rotation::kMostTapBytes) return;
  const rotation::Geometry geometry = rotation::geometry_of(p, device.lanes);
  if (geometry.step == 0 || geometry.units >= kMostUnits || geometry.blocks >= kMostUnits) return;
  Plan plan;
  plan.candidate = "rotation";
  plan.kernel = kRotation;
  plan.tiling = {{"lanes", device.lanes},    {"threads", rotation::kThreads},
                 {"rows", rotation::kRows},  {"columns", rotation::kColumns},
                 {"segment", geometry.step}, {"segments", geometry.segments}};
  // Instructions of a lane: a piece of a tap row costs its multiply-adds, a read of taps and its share of the
  // shuffles; an image row its load, conversions and borders.
  const double rows = static_cast<double>(p.filter_height),
               pieces = static_cast<double>(rotation::pieces_of(p));
  const double image_rows = rows + rotation::kRows - 1;
  const double ragged = p.width % rotation::kColumns == 0 && p.out_width % rotation::kColumns == 0 ? 1 : 2;
  const double wide = p.dtype == ImageType::float64 ? 2 : 1;
  const double instructions =
      rotation::kRows * rows * pieces * 18 * wide + image_rows * (pieces * 12 + 30 * ragged) + 150;
  const double threads = static_cast<double>(geometry.blocks * rotation::kThreads);
  const double issue_us = instructions * threads / (device.fp32_TFLOPs / 2 * 1e6);
  const double bytes_us = ragged * p.bytes() / (device.bandwidth_GBps * 1e3);
  const double full = std::min(1.0, threads / (16.0 * 32 * std::max(device.multiprocessors, 1)));
  // Small images: a lane's own instructions, at two cycles each, and its wait for every image row.
  const double lane_us = instructions * 2 / device.busy_cycles_per_us() + image_rows * 0.1;
  plan.predicted_us = 2 + lane_us + std::max(bytes_us / std::max(full, 0.1), issue_us) / 0.75;
  plans.push_back(std::move(plan));
}

}  // namespace convx::filter2d
