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

// count: of the result rows that a lane makes together.
Accesses accesses_of(const FilterProblem& p, bool by_columns, int64_t count, bool butterfly) {
  const double rows = static_cast<double>(p.filter_height), columns = static_cast<double>(p.filter_width);
  // Image rows for all of them, which need those at once where they overlap.
  const double results = static_cast<double>(count);
  const double together = std::min((results - 1) * static_cast<double>(p.stride_h) + rows, results * rows);
  const double rows_read = together / results;
  if (!by_columns) return {rows_read * columns, 0};
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

// A load counts four issue slots and a shuffle two.
double access_slots(const Accesses& accesses) {
  return 4 * accesses.loads + 2 * accesses.shuffles;
}

// Taps are read once for chunk_rows results of a lane.
Cost cost_of_reuse(const FilterProblem& p, const DeviceTraits& device, bool by_columns, int64_t rows,
                   int64_t chunk_rows) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const double chunk = static_cast<double>(chunk_rows);
  const double slots = taps + access_slots(accesses_of(p, by_columns, rows, true)) + 8 + 4 * taps / chunk;
  return {slots, slots * chunk * 2 / device.busy_cycles_per_us()};
}

// The general kernel computes where each pixel and tap lies, and waits for one pixel after the other.
Cost cost_of_general(const FilterProblem& p, bool by_columns, int64_t rows) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const double slots = 5 * taps + 3 * access_slots(accesses_of(p, by_columns, rows, false)) + 8;
  return {slots, 0.04 * accesses_of(p, false, rows, false).loads * static_cast<double>(rows)};
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

void append_plan(const FilterProblem& p, const DeviceTraits& device, Plan plan, const Cost& cost,
                 int64_t units, int64_t warps, std::vector<Plan>& plans) {
  if (units >= kMostUnits) return;
  plan.predicted_us = predicted_us(p, device, cost, warps);
  plans.push_back(std::move(plan));
}

void append_reuse(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form, int64_t rows,
                  std::vector<Plan>& plans) {
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = kReuse;
  // Where strip and both run, the paper's comparison; elsewhere each is the best for some filters.
  plan.by_name_only = !(form.columns && form.rows);
  for (const int64_t chunk_rows : reuse::kChunkRows) {
    if (chunk_rows % rows != 0) continue;
    plan.tiling = {
        {"lanes", device.lanes}, {"columns", form.columns}, {"rows", rows}, {"chunk_rows", chunk_rows}};
    const int64_t units = reuse::units_of(p, chunk_rows, device.lanes);
    append_plan(p, device, plan, cost_of_reuse(p, device, form.columns, rows, chunk_rows), units, units,
                plans);
  }
}

void append_general(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                    std::vector<Plan>& plans) {
  const int64_t lanes = device.lanes, rows = general_rows(form, image_element_size(p.dtype));
  // Narrow rows lie side by side where no lane needs another's pixels.
  const int64_t segment = form.columns ? lanes : std::min(lanes, p.out_width);
  const int64_t units = p.images * divide_up(p.out_height, rows) * divide_up(p.out_width, segment);
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = kGeneral;
  plan.tiling = {{"lanes", lanes}, {"columns", form.columns}, {"rows", rows}, {"segment", segment}};
  append_plan(p, device, std::move(plan), cost_of_general(p, form.columns, rows), units,
              divide_up(units, lanes / segment), plans);
}

void append_form(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                 std::vector<Plan>& plans) {
  if (!reuse_can_run(p)) return append_general(p, device, form, plans);
  if (!form.rows) return append_reuse(p, device, form, 1, plans);
  for (const int64_t rows : reuse::kRows) {
    if (reuse::has_rows(rows, image_element_size(p.dtype))) append_reuse(p, device, form, rows, plans);
  }
}

}  // namespace

void append_forms(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  for (const ReuseForm& form : kReuseForms) append_form(problem, device, form, plans);
}

}  // namespace convx::filter2d
