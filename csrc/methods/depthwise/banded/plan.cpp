// Planning of banded: large filters of 16 bits on matrix units.
#include <algorithm>
#include <cmath>
#include <utility>

#include "methods/depthwise/banded/geometry.h"
#include "methods/depthwise/family.h"
#include "methods/matrix/precision.h"
#include "plan/append_fastest.h"

namespace convx::depthwise {
namespace {

using banded::Geometry;
using banded::kSide;

constexpr int64_t kLeastTaps = 5, kLimit = int64_t{1} << 28;  // offsets of a plane are 32 bits
constexpr int64_t kLeastOfOctets = 8;                         // taps of weight_grad in channels_last
constexpr size_t kMostPlans = 2;
constexpr int64_t kStacks[] = {1, 2};  // tiles that a warp multiplies at once, each way

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu || !matrix::has_units(device)) {
    return Support::no("needs a GPU with matrix units (sm_80, gfx90a and later)");
  }
  if (element_size(problem.dtype) != banded::kElementBytes) return Support::no("has float16 and bfloat16");
  if (!problem.is_depthwise() || problem.out_channels_per_group() != 1) {
    return Support::no("needs groups = in_channels = out_channels");
  }
  if (problem.stride_h != 1 || problem.stride_w != 1 || problem.dilation_h != 1 || problem.dilation_w != 1) {
    return Support::no("needs stride 1 and dilation 1");
  }
  const int64_t most = std::max(problem.filter_height, problem.filter_width);
  const int64_t least = std::min(problem.filter_height, problem.filter_width);
  if (least < kLeastTaps || most > banded::kMostTaps) {
    return Support::no("needs filters of 5x5 to 32x32");
  }
  // Of 18 random layers of 7x7 on an H200 it was the fastest in none, and took 2.2 to 3.8 times as long as
  // channels_weight where it was taken.
  if (problem.operation == Operation::weight_grad && banded::is_channels_last(problem) &&
      most < kLeastOfOctets) {
    return Support::no("takes weight_grad of channels_last for filters of 8 and more alone");
  }
  for (const auto& [height, width] :
       {std::pair{problem.in_height, problem.in_width}, std::pair{problem.out_height, problem.out_width}}) {
    if (height >= kLimit / width || height * width >= kLimit / problem.in_channels) {
      return Support::no("needs images below 2^28 elements");
    }
  }
  if (problem.batch >= kLimit || std::max(problem.padding_top, problem.padding_left) >= kLimit) {
    return Support::no("needs batches and paddings below 2^28");
  }
  return Support::yes();
}

// Cycles of a block, measured on an H200 with 1094 ways of 64 layers: 7 to 14 % off in the mean. Few warps
// are resident, so that a block takes as long as one warp's reads of shared memory and products, one after
// another.
struct Cost {
  double row;     // a filter's row, or a gradient's, for the tiles that a warp has at once
  double step;    // a fragment of depth of one of them
  double thread;  // an element that a thread brings
  double staged;  // and what all blocks of a multiprocessor share: an element of planes,
  double band;    // and of bands
  double passes;  // over the bytes, by the device's bandwidth
  double start_us;
};
constexpr Cost kPlanes{50, 37, 190, .32, .05, 4.5, 3.7}, kOctets{34, 4.5, 180, .01, .16, 3.9, 1.9},
    kPlanesWeight{0, 78, 57, .62, 0, 0, 3.3}, kOctetsWeight{23, 49, 51, 0, 0, 5.4, 4.7};
constexpr double kDoubt = 1.5;

struct Work {
  double blocks, registers;
  double regions;      // that a block walks through
  double rows, steps;  // of a warp, in all of them
};

double kernel_us(const DeviceTraits& device, const ConvProblem& problem, const Geometry& g, const Work& work,
                 const Cost& cost) {
  const double threads = banded::warps(banded::is_channels_last(problem)) * device.lanes;
  const double by_memory = device.shared_bytes_per_multiprocessor /
                           static_cast<double>(g.shared_bytes + DeviceTraits::kSharedReserve);
  const double by_registers = device.registers_per_multiprocessor / (work.registers * threads);
  const double resident = std::clamp(std::floor(std::min(by_memory, by_registers)), 1.0, 16.0);
  const double waves = std::ceil(work.blocks / (resident * device.multiprocessors));
  const double staged = static_cast<double>(g.planes * g.plane_elements) * work.regions;
  const double band = static_cast<double>(g.bands * g.band_elements) * work.regions;
  const double of_block = cost.row * work.rows + cost.step * work.steps + cost.thread * staged / threads;
  const double of_device = (cost.staged * staged + cost.band * band) * work.blocks / device.multiprocessors;
  const double bytes_us = problem.bytes() / (device.bandwidth_GBps * 1e3);
  return cost.start_us + (waves * of_block + of_device) / device.busy_cycles_per_us() +
         cost.passes * bytes_us;
}

void append_plan(const ConvProblem& problem, const DeviceTraits& device, const Geometry& g, const Work& work,
                 const Cost& cost, Plan plan, std::vector<Plan>& plans) {
  if (g.shared_bytes > device.shared_bytes_per_block || work.blocks >= 2147483647.0) return;
  plan.candidate = banded_family.name;
  plan.kernel = kBanded;
  plan.predicted_us += kernel_us(device, problem, g, work, cost);
  trust(plan, device, kDoubt);
  plans.push_back(std::move(plan));
}

void append_product(const ConvProblem& problem, const DeviceTraits& device, int64_t side, int64_t stack,
                    std::vector<Plan>& plans) {
  const bool last = banded::is_channels_last(problem);
  const Geometry g = banded::product_geometry(problem, device.lanes, stack, side);
  if (last && g.units() > stack) return;
  const int64_t turns = last ? 1 : divide_up(divide_up(g.planes * g.units(), stack), banded::warps(last));
  const double rows = static_cast<double>(turns * problem.filter_height);
  const double registers = stack == 1 ? (last ? 107 : 66) : (last ? 121 : 146);
  const Work work{static_cast<double>(banded::product_blocks(problem, g)), registers, 1, rows,
                  rows * static_cast<double>(g.steps * stack * stack)};
  Plan plan;
  plan.tiling = {{"lanes", device.lanes}, {"side", side}, {"stack", stack}};
  append_plan(problem, device, g, work, last ? kOctets : kPlanes, std::move(plan), plans);
}

void append_weight(const ConvProblem& problem, const DeviceTraits& device, int64_t side,
                   std::vector<Plan>& plans) {
  const bool last = banded::is_channels_last(problem);
  const Geometry g = banded::weight_geometry(problem, device.lanes, side);
  const int64_t units = problem.batch * g.regions();
  const int64_t resident = device.multiprocessors * (last ? 1 : 4);
  const int64_t slices = std::clamp<int64_t>(divide_up(2 * resident, g.groups), 1, units);
  const int64_t regions = divide_up(units, slices);
  const int64_t sides = banded::sides_of(problem);
  const double steps =
      static_cast<double>(regions * g.rows.units * kSide * g.steps / (last ? 1 : banded::kPlaneWarps));
  const Work work{static_cast<double>(g.groups * slices), last ? 151.0 : 86.0, static_cast<double>(regions),
                  steps, steps * static_cast<double>(sides * sides)};
  Plan plan;
  plan.tiling = {{"lanes", device.lanes}, {"side", side}, {"slices", slices}};
  if (slices > 1) plan.workspace_bytes = slices * problem.weight_elements() * 4;
  plan.predicted_us = slices > 1 ? 2 : 0;  // of the sum
  append_plan(problem, device, g, work, last ? kOctetsWeight : kPlanesWeight, std::move(plan), plans);
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  std::vector<Plan> some;
  for (const int64_t side : {1, 2, 4}) {
    if (problem.operation == Operation::weight_grad) {
      append_weight(problem, device, side, some);
    } else {
      for (const int64_t stack : kStacks) append_product(problem, device, side, stack, some);
    }
  }
  append_fastest(plans, std::move(some), kMostPlans);
}

}  // namespace

const Family banded_family = {"banded", supports, append};

}  // namespace convx::depthwise
