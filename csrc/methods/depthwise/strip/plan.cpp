// Planning of strip: which forms can run, and how long they take.
#include <algorithm>
#include <string>

#include "methods/depthwise/family.h"
#include "methods/depthwise/planes_support.h"
#include "methods/depthwise/strip/geometry.h"

namespace convx::depthwise {
namespace {

using strip::Geometry;
using strip::Mapping;
using strip::Tile;
using strip::Variant;
using strip::View;

constexpr int64_t kLimit = int64_t{1} << 30;  // 32-bit offsets in a plane; unit numbers below 2^31

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support planes = supports_planes(problem, device); !planes.ok) return planes;
  if (problem.operation == Operation::input_grad && problem.out_channels_per_group() != 1) {
    return Support::no("needs out_channels = in_channels for input_grad");
  }
  const int64_t filter = problem.filter_height;
  if (problem.operation == Operation::forward && problem.stride_w == 2 &&
      (problem.padding_left - filter / 2) % 2 != 0) {
    return Support::no("needs padding_left " + std::string(filter / 2 % 2 != 0 ? "odd" : "even") +
                       " for stride 2 and this filter");
  }
  const int64_t height = std::max(problem.in_height, problem.out_height) + problem.padding_top + 64;
  const int64_t width = std::max(problem.in_width, problem.out_width) + problem.padding_left + 64;
  if (width >= kLimit || height >= kLimit / width) {
    return Support::no("needs padded planes of fewer than 2^30 elements");
  }
  if (problem.batch * std::max(problem.in_channels, problem.out_channels) >= kLimit) {
    return Support::no("needs batch * channels below 2^30");
  }
  const View view = strip::view_of(problem);
  const int bytes = static_cast<int>(element_size(problem.dtype));
  for (const Variant variant : {Variant::ragged_flat, Variant::columns_only}) {
    const Tile tile = strip::tile_of(bytes, static_cast<int>(filter), view.mapping, variant);
    if (strip::geometry_of(view, filter, tile, device.lanes).units >= kLimit) {
      return Support::no("needs fewer than 2^30 pieces of rows");
    }
  }
  return Support::yes();
}

bool has_code(const ConvProblem& problem, Mapping mapping, Variant variant) {
  const int filter = static_cast<int>(problem.filter_height);
  if (strip::loads_halo(variant) || strip::has_one_row(variant)) {
    return strip::has_halves(problem.dtype, filter, mapping, variant);
  }
  return !strip::is_narrow(variant) ||
         strip::has_narrow(static_cast<int>(element_size(problem.dtype)), filter, mapping);
}

bool fits_aligned(const View& view, const Tile& tile, const Geometry& geometry) {
  return geometry.column_shift == 0 && view.source_width % tile.columns == 0 &&
         view.result_width % strip::result_columns(view.mapping, tile.columns) == 0;
}

// Fraction of max(bytes, multiply-adds) at full load on an H200: findings/depthwise.md where it was measured
// (stride 1, aligned), estimates elsewhere.
double efficiency(const ConvProblem& problem, const View& view, Variant variant) {
  const bool half = element_size(problem.dtype) == 2;
  const int64_t filter = problem.filter_height;
  double value = filter == 3 ? (half ? 0.95 : 0.99) : filter == 5 ? (half ? 0.6 : 0.87) : (half ? 0.4 : 0.55);
  if (view.mapping != Mapping::correlate1) value = std::min(value, 0.8);
  if (view.source_width < 48) value *= 0.96;
  if (view.source_width < 24) value *= 0.85;
  if (strip::is_flat(variant)) value *= 0.85;
  if (strip::is_narrow(variant)) value *= 0.85;
  if (loads_halo(variant)) value *= 0.84;
  if (has_one_row(variant)) value *= 0.7;
  if (!strip::is_aligned(variant)) value *= half ? 0.3 : 0.5;
  return value;
}

const char* candidate_name(Variant variant) {
  return strip::is_rows_only(variant)      ? "row_reuse"
         : strip::is_columns_only(variant) ? "column_reuse"
         : strip::is_no_reuse(variant)     ? "no_reuse"
                                           : "strip";
}

// The papers' halves and their base. By lanes with the widest accesses they were the fastest on 5 of 208
// problems on an H200, of small maps at one image, by 0.2 us at most: too little to be another choice.
bool is_comparison(Variant variant) {
  return strip::is_rows_only(variant) || strip::is_columns_only(variant) || strip::is_no_reuse(variant);
}

void append_variant(const ConvProblem& problem, const DeviceTraits& device, const View& view, Variant variant,
                    std::vector<Plan>& plans) {
  const int64_t filter = problem.filter_height;
  const Tile tile = strip::tile_of(static_cast<int>(element_size(problem.dtype)), static_cast<int>(filter),
                                   view.mapping, variant);
  const Geometry geometry = strip::geometry_of(view, filter, tile, device.lanes);
  if (strip::is_aligned(variant) && !fits_aligned(view, tile, geometry)) return;
  if (!has_code(problem, view.mapping, variant)) return;
  Plan plan;
  plan.candidate = candidate_name(variant);
  plan.kernel = kStrip;
  plan.by_name_only = is_comparison(variant);
  plan.tiling = {{"lanes", device.lanes},
                 {"threads", tile.threads},
                 {"rows", tile.rows},
                 {"columns", tile.columns},
                 {"segment", geometry.step},
                 {"segments", geometry.segments},
                 {"variant", static_cast<int64_t>(variant)}};
  const double stream = std::max(problem.bytes() / (device.bandwidth_GBps * 1e3),
                                 problem.flops() / (device.fp32_TFLOPs * 1e6)) /
                        efficiency(problem, view, variant);
  // Small problems: a lane's own instructions, at two cycles each, and bandwidth that too few
  // warps leave unused.
  const double results = strip::result_columns(view.mapping, tile.columns);
  const double taps = static_cast<double>(filter * filter) / (view.mapping == Mapping::transpose2 ? 4 : 1);
  const double lane_us = (tile.rows * results * (taps + 6) + 60) * 2 / device.busy_cycles_per_us();
  const double warps = static_cast<double>(geometry.warps() * device.lanes / 32);
  const double full = std::min(1.0, warps / (16.0 * std::max(device.multiprocessors, 1)));
  plan.predicted_us = 2 + lane_us + stream / std::max(full, 0.1);
  plans.push_back(std::move(plan));
}

// What lanes load and store at once: 16 bytes, 8, or elements; with both reuses, and the papers' halves.
struct Access {
  Variant whole[2], forms[3];
};
constexpr Access kAccesses[] = {
    {{Variant::tall, Variant::flat}, {Variant::rows_only, Variant::columns_only, Variant::no_reuse}},
    {{Variant::narrow_tall, Variant::narrow_flat},
     {Variant::narrow_rows_only, Variant::narrow_columns_only, Variant::narrow_no_reuse}},
    {{Variant::ragged_tall, Variant::ragged_flat},
     {Variant::ragged_rows_only, Variant::ragged_columns_only, Variant::ragged_no_reuse}},
};

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const View view = strip::view_of(problem);
  // The widest accesses that the rows allow, for all forms alike.
  const size_t first = plans.size();
  for (const Access& access : kAccesses) {
    for (const Variant variant : access.whole) append_variant(problem, device, view, variant, plans);
    if (plans.size() == first) continue;
    for (const Variant variant : access.forms) append_variant(problem, device, view, variant, plans);
    return;
  }
}

}  // namespace

const Family strip_family = {"strip", supports, append};

}  // namespace convx::depthwise
