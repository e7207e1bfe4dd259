// How blocks are shared out among a CPU's threads.
#include <algorithm>
#include <cmath>
#include <string>

#include "methods/inverted_residual/cpu/cpu.h"

namespace convx::inverted_residual::cpu {
namespace {

// Expanded and filtered rows of a strip. From 64 KB to 2 MB hardly matter; where the last product's filters
// are large, few strips read them seldom.
constexpr int64_t kStripBytes = 512 << 10;
constexpr int64_t kMostStripRows = 64;

int64_t strip_rows_of(const BlockProblem& p, int64_t rows) {
  const int64_t of_row = p.expanded_channels * (p.stride * p.expanded_width + p.out_width) * 4;
  return std::clamp<int64_t>(kStripBytes / of_row, 1, std::min(rows, kMostStripRows));
}

// Rows at the edges of bands are expanded twice.
double predicted_us(const BlockProblem& p, const DeviceTraits& device, const Tiling& t) {
  const double batch = static_cast<double>(p.batch), expanded = static_cast<double>(p.expanded_channels);
  const double twice =
      t.bands > 1 ? static_cast<double>((t.bands - 1) * (p.filter - p.stride)) / p.expanded_height : 0;
  const double rows = static_cast<double>(p.expanded_height) * (1 + std::max(twice, 0.0));
  const double expand = 2 * batch * rows * static_cast<double>(p.expanded_width) * expanded *
                        static_cast<double>(p.expand_depth());
  const double results = batch * static_cast<double>(p.out_pixels());
  const double filter = 2 * results * expanded * static_cast<double>(p.filter * p.filter);
  const double project = 2 * results * expanded * static_cast<double>(p.out_channels);
  const double tasks = static_cast<double>(t.bands > 0 ? p.batch * t.bands : t.workers);
  const double even =
      std::ceil(tasks / static_cast<double>(t.workers)) * static_cast<double>(t.workers) / tasks;
  const double exchanged = t.bands > 0 ? 0 : results * expanded * 4 / 2 / 20e3 + 2;  // from the other cores
  const double peak = device.fp32_TFLOPs * 1e6 * static_cast<double>(t.workers) / device.threads;
  return 2 + exchanged + even * ((expand + project) / (0.8 * peak) + filter / (0.4 * peak));
}

}  // namespace

Support supports(const BlockProblem& p) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (p.dtype != DType::float32) {
    return Support::no(std::string("on CPUs it takes float32, not ") + to_string(p.dtype));
  }
  if (p.filter != 3 && p.filter != 5) {
    return Support::no("it takes filters of 3x3 and 5x5, not " + number(p.filter) + "x" + number(p.filter));
  }
  if (p.stride != 1 && p.stride != 2) {
    return Support::no("it takes strides of 1 and 2, not " + number(p.stride));
  }
  if (p.expand_filter == 1 && p.expand_stride != 1) {
    return Support::no("it expands every pixel, not one in " + number(p.expand_stride));
  }
  if (p.layout != Layout::nhwc && p.expand_filter == 1) {
    return Support::no("it expands pixels of channels_last alone");
  }
  if (p.out_height > kMostHeight) {
    return Support::no("results have at most " + number(kMostHeight) + " rows, not " + number(p.out_height));
  }
  if (p.batch == 0) return Support::no("the batch is empty");
  return Support::yes();
}

std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  std::vector<Plan> plans;
  const auto append = [&](const char* candidate, const Tiling& t) {
    const Geometry g = geometry_of(p, t);
    Plan plan;
    plan.candidate = candidate;
    plan.tiling = {
        {"lanes", t.lanes}, {"bands", t.bands}, {"strip_rows", t.strip_rows}, {"workers", t.workers}};
    plan.packing = "panels of " + std::to_string(t.lanes);
    plan.packed_weight_bytes = g.packed * 4;
    plan.workspace_bytes = g.workspace * 4;
    plan.predicted_us = predicted_us(p, device, t);
    plans.push_back(std::move(plan));
  };
  const int64_t lanes = vector_lanes(device.isa, p.dtype), threads = std::max(device.threads, 1);
  // Whole images where there are enough of them.
  const int64_t bands = std::min(divide_up(threads, p.batch), p.out_height);
  const int64_t strip_rows = strip_rows_of(p, divide_up(p.out_height, bands));
  const bool is_excited = p.squeezed_channels > 0;
  append(is_excited ? "excited" : "strips", {lanes, bands, strip_rows, std::min(threads, p.batch * bands)});
  if (p.batch < threads) append("channels", {lanes, 0, p.out_height, threads});
  return plans;
}

Tiling tiling_of(const Plan& plan) {
  return {plan["lanes"], plan["bands"], plan["strip_rows"], plan["workers"]};
}

}  // namespace convx::inverted_residual::cpu
