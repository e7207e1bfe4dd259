// Plans of the paper's forms: of reuse/ for the filters that it is compiled for, of general/ for all others.
#include <algorithm>

#include "methods/filter2d/reuse/tiles.h"

namespace convx::filter2d {
namespace {

// What a lane does for one result besides its multiply-adds: reads of pixels and shuffles.
struct Accesses {
  double loads, shuffles;
};

bool reuse_can_run(const FilterProblem& p) {
  return p.dtype != ImageType::float64 && p.filter_height == p.filter_width &&
         reuse::has_filter(p.filter_width, image_element_size(p.dtype)) && p.stride_h == 1 &&
         p.stride_w == 1 && p.dilation_h == 1 && p.dilation_w == 1;
}

Accesses accesses_of(const FilterProblem& p, const ReuseForm& form, bool butterfly) {
  const double rows = static_cast<double>(p.filter_height), columns = static_cast<double>(p.filter_width);
  // Image rows for kMaxReuseRows result rows, which need all of them at once where they overlap.
  const double together =
      std::min((kMaxReuseRows - 1) * static_cast<double>(p.stride_h) + rows, kMaxReuseRows * rows);
  const double rows_read = form.rows ? together / kMaxReuseRows : rows;
  if (!form.columns) return {rows_read * columns, 0};
  const double loaded = butterfly ? (p.filter_width == 7 ? 3 : 2)
                                  : 2.0 * static_cast<double>(std::min(p.stride_w, p.filter_width));
  const double shuffled = butterfly ? columns - loaded : columns;
  return {rows_read * loaded, rows_read * shuffled};
}

// A load counts four issue slots of arithmetic and a shuffle two, as measured for forms without reuse.
double predicted_us(const FilterProblem& p, const DeviceTraits& device, const Accesses& accesses,
                    double tap_cost, double access_cost, int64_t warps) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const double slots = taps * tap_cost + access_cost * (4 * accesses.loads + 2 * accesses.shuffles) + 8;
  const double issue_us = slots * static_cast<double>(p.result_elements()) / (device.fp32_TFLOPs / 2 * 1e6);
  const double bytes_us = p.bytes() / (device.bandwidth_GBps * 1e3);
  const double wide = p.dtype == ImageType::float64 ? 2 : 1;
  const double full =
      std::min(1.0, static_cast<double>(warps) / (16.0 * std::max(device.multiprocessors, 1)));
  return 3 + std::max(bytes_us, wide * issue_us) / 0.8 / std::max(full, 0.05);
}

void append_form(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                 std::vector<Plan>& plans) {
  const bool fixed = reuse_can_run(p);
  const int64_t lanes = device.lanes, rows = form.rows ? kMaxReuseRows : 1;
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = fixed ? kReuse : kGeneral;
  plan.tiling = {{"lanes", lanes}, {"columns", form.columns}, {"rows", rows}};
  int64_t units = 0, warps = 0;
  if (fixed) {
    plan.tiling.emplace_back("chunk_rows", reuse::kChunkRows);
    units = reuse::units_of(p, reuse::kChunkRows, lanes);
    warps = units * p.filters;
  } else {
    // Narrow rows lie side by side where no lane needs another's pixels.
    const int64_t segment = form.columns ? lanes : std::min(lanes, p.out_width);
    plan.tiling.emplace_back("segment", segment);
    units = p.images * divide_up(p.out_height, rows) * divide_up(p.out_width, segment);
    warps = divide_up(units, lanes / segment) * p.filters;
  }
  if (units >= kMostUnits) return;
  plan.predicted_us =
      predicted_us(p, device, accesses_of(p, form, fixed), fixed ? 1.0 : 5.0, fixed ? 1.0 : 3.0, warps);
  plans.push_back(std::move(plan));
}

}  // namespace

void append_forms(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  for (const ReuseForm& form : kReuseForms) append_form(problem, device, form, plans);
}

}  // namespace convx::filter2d
