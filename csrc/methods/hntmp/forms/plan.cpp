// Which of the paper's forms there are for a problem, and what they should cost.
#include <algorithm>
#include <iterator>
#include <string>

#include "methods/hntmp/forms/forms.h"
#include "methods/packing/crsk.h"

namespace convx::hntmp::forms {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;  // of the number of blocks

// What the paper has: one precision, and filters like those of its networks.
bool is_published(const ConvProblem& p) {
  const bool is_square = p.filter_height == p.filter_width;
  return p.operation == Operation::forward && p.dtype == DType::float32 && p.layout == Layout::nchw &&
         p.groups == 1 && p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 && p.dilation_w == 1 &&
         is_square && std::count(std::begin(kFilterSides), std::end(kFilterSides), p.filter_width) > 0;
}

// A thread goes from channel to channel: what it issues there, and what it waits for memory, once for the
// tile and with cached filters once for each of them.
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s, const Tiling& t,
                    const Geometry& g) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  constexpr double kMemory = 700, kSharedTrip = 60;
  const double sums = number(t.form == kPublished ? t.rows * t.columns : t.channels);
  const double products = sums * number(s.taps());
  const double waits = kMemory + (t.form == kDirectCached ? number(t.channels) * (kMemory + kSharedTrip) : 0);
  const double blocks = std::max(1.0, number(g.blocks) / std::max(device.multiprocessors, 1));
  const double issue = blocks * 2 * products * number(kThreads) / 32 / 4;
  return 3 + number(s.source_channels) * std::max(issue, 2 * products + waits) / device.busy_cycles_per_us() +
         problem.bytes() / (device.bandwidth_GBps * 1e3);
}

void append(const ConvProblem& problem, const DeviceTraits& device, Form form, const Shape& shape,
            std::vector<Plan>& plans) {
  const Sweep s = sweep_of(problem);
  const Tiling t{form, shape.rows, shape.columns, shape.channels};
  const Geometry g = geometry_of(s, t);
  if (g.blocks >= kLimit) return;
  Plan plan;
  plan.candidate = kNames[form];
  plan.kernel = form;
  plan.by_name_only = true;
  plan.tiling = {{"rows", t.rows}, {"columns", t.columns}, {"block_channels", t.channels}};
  if (form == kPublished) {
    plan.packing = packing::crsk_name(problem, kThreads);
    plan.packed_weight_bytes = packing::crsk_bytes(problem, kThreads);
  }
  plan.predicted_us = predicted_us(problem, device, s, t, g);
  plans.push_back(std::move(plan));
}

}  // namespace

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  if (!is_published(problem)) return plans;
  for (const Shape& shape : kPublishedShapes) append(problem, device, kPublished, shape, plans);
  for (const Form form : {kDirect, kDirectCached}) append(problem, device, form, kDirectShape, plans);
  return plans;
}

bool is_form(const std::string& candidate) {
  return std::count(std::begin(kNames), std::end(kNames), candidate) > 0;
}

std::string why_absent(const ConvProblem& problem, const std::string& candidate) {
  if (!is_form(candidate) || is_published(problem)) return "";
  return "it is for what the paper has: forward in float32 and nchw, filters of 1x1 and 3x3, stride 1, no "
         "dilation and one group";
}

}  // namespace convx::hntmp::forms
