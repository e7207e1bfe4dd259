#include <algorithm>

#include "methods/filter2d/strip/geometry.h"

namespace convx::filter2d {
namespace {

using strip::Cut;
using strip::Geometry;
using strip::Tile;
using strip::Variant;

bool can_run(const FilterProblem& p) {
  return p.dtype != ImageType::float64 && p.filter_height == p.filter_width &&
         strip::has_filter(p.filter_width) && p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 &&
         p.dilation_w == 1;
}

// Whether every strip of the images and of the result is a piece of whole, aligned vectors.
bool is_aligned(const FilterProblem& p, const Tile& tile) {
  return p.padding_left == p.filter_width / 2 && p.width % tile.columns == 0 &&
         p.out_width % tile.columns == 0;
}

// Share of the bandwidth or of the issue rate that large images get.
double efficiency(const FilterProblem& p, Variant variant) {
  if (variant == Variant::ragged) return p.dtype == ImageType::float32 ? 0.5 : 0.35;
  const double share = variant == Variant::flat ? 0.8 : 0.88;
  return p.filter_width <= 5 ? share : 0.9 * share;
}

void append_variant(const FilterProblem& p, const DeviceTraits& device, Variant variant,
                    std::vector<Plan>& plans) {
  const int side = static_cast<int>(p.filter_height);
  const Tile tile = strip::tile_of(static_cast<int>(image_element_size(p.dtype)), side, variant);
  if (variant != Variant::ragged && !is_aligned(p, tile)) return;
  const Cut cut = strip::choose_cut(p, device, tile);
  const Geometry geometry = strip::geometry_of(p, tile, cut, device.lanes);
  if (geometry.units >= kMostUnits || geometry.blocks >= kMostUnits) return;
  Plan plan;
  plan.candidate = "strip";
  plan.kernel = kStrip;
  plan.tiling = {{"lanes", device.lanes},
                 {"threads", tile.threads},
                 {"rows", tile.rows},
                 {"columns", tile.columns},
                 {"segment", cut.step},
                 {"segments", cut.segments},
                 {"stack", cut.stack},
                 {"filters", cut.filters_per_block},
                 {"variant", static_cast<int64_t>(variant)}};
  // Instructions of a result: its multiply-adds and its share of loads, shuffles, rounding and stores.
  const double lanes_spent =
      static_cast<double>(geometry.blocks * tile.threads * cut.filters_per_block * tile.rows * tile.columns) /
      static_cast<double>(p.result_elements());
  const double conversions = p.dtype == ImageType::float32 ? 0 : p.dtype == ImageType::uint8 ? 6 : 2;
  const double instructions =
      lanes_spent * (side * side + 5 + conversions) * static_cast<double>(p.result_elements());
  const double bytes_us = p.bytes() / (device.bandwidth_GBps * 1e3);
  const double issue_us = instructions / (device.fp32_TFLOPs / 2 * 1e6);
  // Small images: a lane's own instructions, at two cycles each, and bandwidth that too few warps
  // leave unused, no more than 0.6 of it as measured on an H200.
  const double lane_us = (tile.rows * tile.columns * (side * side + 6) * cut.filters_per_block + 60) * 2 /
                         device.busy_cycles_per_us();
  const double warps = static_cast<double>(geometry.blocks * tile.threads) / 32;
  const double full = std::clamp(warps / (16.0 * std::max(device.multiprocessors, 1)), 0.4, 1.0);
  plan.predicted_us = 2 + lane_us + std::max(bytes_us, issue_us) / efficiency(p, variant) / full;
  plans.push_back(std::move(plan));
}

}  // namespace

void append_strip(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!can_run(problem)) return;
  const size_t first = plans.size();
  append_variant(problem, device, Variant::tall, plans);
  append_variant(problem, device, Variant::flat, plans);
  if (plans.size() == first) append_variant(problem, device, Variant::ragged, plans);
}

}  // namespace convx::filter2d
