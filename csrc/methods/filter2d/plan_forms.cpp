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

// What a kernel's results cost: issue slots of one, and the time that a lane alone takes for its own.
struct Cost {
  double slots;
  double lane_us;
};

// A load counts four issue slots and a shuffle two. The general kernel computes where each pixel and tap
// lies, and waits for one pixel after the other.
Cost cost_of(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form, bool fixed) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const Accesses accesses = accesses_of(p, form, fixed);
  const double access_slots = 4 * accesses.loads + 2 * accesses.shuffles;
  if (fixed) {
    const double slots = taps + access_slots + 8;
    return {slots, slots * static_cast<double>(reuse::kChunkRows) * 2 / device.busy_cycles_per_us()};
  }
  const double pixels = accesses_of(p, {form.candidate, false, form.rows}, fixed).loads;
  return {5 * taps + 3 * access_slots + 8, 0.04 * pixels * (form.rows ? kMaxReuseRows : 1)};
}

double predicted_us(const FilterProblem& p, const DeviceTraits& device, const Cost& cost, int64_t warps) {
  const double wide = p.dtype == ImageType::float64 ? 2 : 1;
  const double issue_us =
      wide * cost.slots * static_cast<double>(p.result_elements()) / (device.fp32_TFLOPs / 2 * 1e6);
  // Depthwise kernels with one column a lane reach this share of the bandwidth on an H200.
  const double bytes_us = p.bytes() / (device.bandwidth_GBps * 1e3) / 0.45;
  const double full =
      std::min(1.0, static_cast<double>(warps) / (16.0 * std::max(device.multiprocessors, 1)));
  return 2 + cost.lane_us * static_cast<double>(p.filters) +
         std::max(bytes_us, issue_us / 0.8) / std::max(full, 0.1);
}

void append_form(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                 std::vector<Plan>& plans) {
  const bool fixed = reuse_can_run(p);
  const int64_t lanes = device.lanes, rows = fixed ? (form.rows ? kMaxReuseRows : 1)
                                                   : general_rows(form, image_element_size(p.dtype));
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = fixed ? kReuse : kGeneral;
  // Where strip and both run, the paper's comparison; elsewhere each is the best for some filters.
  plan.by_name_only = fixed && !(form.columns && form.rows);
  plan.tiling = {{"lanes", lanes}, {"columns", form.columns}, {"rows", rows}};
  int64_t units = 0, warps = 0;
  if (fixed) {
    plan.tiling.emplace_back("chunk_rows", reuse::kChunkRows);
    units = reuse::units_of(p, reuse::kChunkRows, lanes);
    warps = units;
  } else {
    // Narrow rows lie side by side where no lane needs another's pixels.
    const int64_t segment = form.columns ? lanes : std::min(lanes, p.out_width);
    plan.tiling.emplace_back("segment", segment);
    units = p.images * divide_up(p.out_height, rows) * divide_up(p.out_width, segment);
    warps = divide_up(units, lanes / segment);
  }
  if (units >= kMostUnits) return;
  plan.predicted_us = predicted_us(p, device, cost_of(p, device, form, fixed), warps);
  plans.push_back(std::move(plan));
}

}  // namespace

void append_forms(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  for (const ReuseForm& form : kReuseForms) append_form(problem, device, form, plans);
}

}  // namespace convx::filter2d
