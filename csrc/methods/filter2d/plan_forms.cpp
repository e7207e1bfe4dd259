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

// The time that takes image and result through the memory.
double bytes_us(const FilterProblem& p, const DeviceTraits& device) {
  return p.bytes() / (device.bandwidth_GBps * 1e3);
}

// The time of so many issue slots for each result.
double issue_us(const FilterProblem& p, const DeviceTraits& device, double slots) {
  const double wide = p.dtype == ImageType::float64 ? 2 : 1;
  return wide * slots * static_cast<double>(p.result_elements()) / (device.fp32_TFLOPs / 2 * 1e6);
}
// How much of the GPU so many warps use.
double share_of_warps(const DeviceTraits& device, int64_t warps) {
  const double full = static_cast<double>(warps) / (16.0 * std::max(device.multiprocessors, 1));
  return std::clamp(full, 0.1, 1.0);
}

// Fitted to an H200's times with images of 2048 and 4096 a side: a load takes 4.7 slots, a shuffle 4, a
// tap 8.8 for the results of a lane, and three quarters of the bytes' time are not hidden. Small images wait
// for a lane's own instructions, at two cycles each.
double predicted_reuse_us(const FilterProblem& p, const DeviceTraits& device, bool by_columns, int64_t rows,
                          int64_t chunk_rows, int64_t warps) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const double chunk = static_cast<double>(chunk_rows);
  const Accesses accesses = accesses_of(p, by_columns, rows, true);
  const double slots = taps + 4.7 * accesses.loads + 4 * accesses.shuffles + 8.8 * taps / chunk;
  const double lane_us = slots * chunk * 2 / device.busy_cycles_per_us();
  return 2 + lane_us * static_cast<double>(p.filters) +
         (0.75 * bytes_us(p, device) + issue_us(p, device, slots)) / share_of_warps(device, warps);
}

// The general kernel computes where each pixel and tap lies, and waits for one pixel after the other.
double predicted_general_us(const FilterProblem& p, const DeviceTraits& device, bool by_columns, int64_t rows,
                            int64_t warps) {
  const double taps = static_cast<double>(p.filter_height * p.filter_width);
  const Accesses accesses = accesses_of(p, by_columns, rows, false);
  const double slots = 5 * taps + 12 * accesses.loads + 6 * accesses.shuffles + 8;
  const double lane_us = 0.04 * accesses_of(p, false, rows, false).loads * static_cast<double>(rows);
  // Depthwise kernels with one column a lane reach 0.45 of the bandwidth on an H200.
  return 2 + lane_us * static_cast<double>(p.filters) +
         std::max(bytes_us(p, device) / 0.45, issue_us(p, device, slots) / 0.8) /
             share_of_warps(device, warps);
}

void append_reuse(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form, int64_t rows,
                  std::vector<Plan>& plans) {
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = kReuse;
  plan.by_name_only = true;  // the paper's comparison: strip runs wherever these do
  for (const int64_t chunk_rows : reuse::kChunkRows) {
    const int64_t units = reuse::units_of(p, chunk_rows, device.lanes);
    if (chunk_rows % rows != 0 || units >= kMostUnits) continue;
    plan.tiling = {
        {"lanes", device.lanes}, {"columns", form.columns}, {"rows", rows}, {"chunk_rows", chunk_rows}};
    plan.predicted_us = predicted_reuse_us(p, device, form.columns, rows, chunk_rows, units);
    plans.push_back(plan);
  }
}

void append_general(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                    std::vector<Plan>& plans) {
  const int64_t lanes = device.lanes, rows = general_rows(form, image_element_size(p.dtype));
  // Narrow rows lie side by side where no lane needs another's pixels.
  const int64_t segment = form.columns ? lanes : std::min(lanes, p.out_width);
  const int64_t units = p.images * divide_up(p.out_height, rows) * divide_up(p.out_width, segment);
  if (units >= kMostUnits) return;
  Plan plan;
  plan.candidate = form.candidate;
  plan.kernel = kGeneral;
  plan.tiling = {{"lanes", lanes}, {"columns", form.columns}, {"rows", rows}, {"segment", segment}};
  plan.predicted_us = predicted_general_us(p, device, form.columns, rows, divide_up(units, lanes / segment));
  plans.push_back(std::move(plan));
}

void append_form(const FilterProblem& p, const DeviceTraits& device, const ReuseForm& form,
                 std::vector<Plan>& plans) {
  if (!reuse_can_run(p)) return append_general(p, device, form, plans);
  if (!form.rows) return append_reuse(p, device, form, 1, plans);
  for (const int64_t rows : reuse::kRows) {
    if (!reuse::has_rows(rows, p.filter_width, image_element_size(p.dtype))) continue;
    append_reuse(p, device, form, rows, plans);
  }
}

}  // namespace

void append_forms(const FilterProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  for (const ReuseForm& form : kReuseForms) append_form(problem, device, form, plans);
}

}  // namespace convx::filter2d
