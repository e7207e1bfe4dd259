// GPU candidates: the published two stages, the tile kernel with its planes by tap, by channels, or none, and
// those of matrix units.
#include <algorithm>
#include <cmath>

#include "methods/cuconv/family.h"
#include "methods/cuconv/launch.h"
#include "methods/cuconv/tile/cost.h"
#include "methods/packing/crsk.h"
#include "plan/append_fastest.h"
#include "problem/memory.h"

namespace convx::cuconv {
namespace {

using tile::Geometry;
using tile::Shape;
using tile::Tiling;

constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
constexpr int64_t kPlanes[] = {2, 3, 4, 6, 8, 12, 16};  // that channels are split over

// A second kernel in the same stream, its launch overlapped with the first or not.
double stage_us(const DeviceTraits& device) {
  return device.overlaps_kernels() ? 1.2 : 2.0;
}

int64_t accumulator_bytes(DType dtype) {
  return dtype == DType::float64 ? 8 : 4;
}

// Strips beside and below one another: the fewest tiles, and of those the smallest window.
int64_t strips_across(const Sweep& s, const Tiling& tiling) {
  const int64_t strips = tiling.lanes / tile::kFilterLanes;
  if (s.is_flat()) return strips;
  Tiling t = tiling;
  int64_t best = 1, least_tiles = INT64_MAX, least_window = INT64_MAX;
  for (t.across = 1; t.across <= strips; t.across *= 2) {
    const Geometry g = tile::geometry_of(s, t, 4);
    const int64_t tiles = g.tiles_down * g.tiles_across;
    if (tiles < least_tiles || (tiles == least_tiles && g.positions < least_window)) {
      best = t.across, least_tiles = tiles, least_window = g.positions;
    }
  }
  return best;
}

// Channels and taps of a stage: whole filters where they are small enough.
void choose_window(const Sweep& s, Tiling& t) {
  constexpr int64_t kMostValues = 3600, kMostPositions = 1024;
  const auto too_large = [&] {
    t.across = strips_across(s, t);
    const Geometry g = tile::geometry_of(s, t, 4);
    return g.reduction * g.block_filters > kMostValues || t.chunk * g.positions > kMostPositions;
  };
  if (s.is_flat()) {
    t.chunk = tile::kFlatChunk;
    t.across = strips_across(s, t);
    return;
  }
  t.chunk = 4;
  while (t.chunk > 1 && t.chunk / 2 >= s.source_channels) t.chunk /= 2;
  while (t.chunk > 1 && too_large()) t.chunk /= 2;
  while (too_large()) {
    if (t.rows > 1) {
      t.rows = t.rows == 2 ? 1 : divide_up(t.rows, 2);
    } else if (t.columns > 1) {
      t.columns = divide_up(t.columns, 2);
    } else {
      break;
    }
  }
}

Plan plan_of(const char* candidate, Kernel kernel, const ConvProblem& problem, const DeviceTraits& device) {
  Plan plan;
  plan.candidate = candidate;
  plan.kernel = kernel;
  if (problem.operation == Operation::input_grad) {
    plan.packing = packing::crsk_name(problem, 1);
    plan.packed_weight_bytes = packing::crsk_bytes(problem, 1);
  }
  plan.tiling = {{"lanes", device.lanes}};
  return plan;
}

// The planes that a plan leaves to the sum.
void add_planes(Plan& plan, const ConvProblem& problem, const Sweep& s, int64_t planes) {
  plan.tiling.emplace_back("planes", planes);
  if (planes > 1) plan.workspace_bytes = planes * s.results() * accumulator_bytes(problem.dtype);
}

// Section 3 of the paper, unimproved, for comparisons. One loaded source value and one filter value for every
// multiply-add.
void append_published(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                      std::vector<Plan>& plans) {
  const int64_t pixels = s.batch * s.result_plane();
  const int64_t threads = std::min<int64_t>(kMostProductThreads, round_up(pixels, device.lanes));
  const int64_t blocks = s.all_result_channels() * s.taps() * divide_up(pixels, threads);
  if (!within_budget(s, s.taps(), problem.dtype) || std::max(blocks, pixels) > kMostBlocks) return;
  const int64_t warps = blocks * threads / 32;
  Plan plan = plan_of("two_stage", kProducts, problem, device);
  plan.by_name_only = true;
  plan.tiling.emplace_back("threads", threads);
  plan.tiling.emplace_back("blocks", blocks);
  add_planes(plan, problem, s, s.taps());
  const Clock clock = Clock::of(device);
  // Four schedulers; about 15 cycles of a scheduler for a product of a warp, as measured on the 3x3 and 1x1
  // layers of networks, and the latency of a load for each four channels of the longest chain.
  const double issue = static_cast<double>(warps * s.source_channels) * 15 / (4 * clock.processors);
  const double chain = static_cast<double>(s.source_channels) * 75;
  plan.predicted_us = kLaunch_us + kFirstData_us + std::max(issue, chain) / clock.cycles_per_us +
                      sum_us(s, s.taps(), problem.dtype, device);
  plans.push_back(std::move(plan));
}

struct Choice {
  Tiling tiling;
  double us;
};

// Every tiling of the tile kernel with that many planes, until one is enough: visit(shape, tiling, geometry)
// says whether it is.
template <class Visit>
bool for_each_tiling(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s, int64_t planes,
                     bool planes_are_taps, const Visit& visit) {
  for (const Shape& shape : tile::kShapes) {
    if (!tile::has_shape(shape, problem.dtype)) continue;
    Tiling t{};
    t.lanes = device.lanes, t.filters = shape.filters, t.pixels = shape.pixels;
    t.planes = planes, t.planes_are_taps = planes_are_taps ? 1 : 0;
    t.rows = planes_are_taps ? 1 : s.filter_height;
    t.columns = planes_are_taps ? 1 : s.filter_width;
    choose_window(s, t);
    t.across = strips_across(s, t);
    for (t.warps = 1; t.warps * t.lanes <= tile::most_threads(t.lanes, t.filters); t.warps *= 2) {
      t.part = tile::part_of(s, t, problem.dtype);
      // Sixteen warps fill each other's gaps with two stages, and that is 1 to 4 % faster.
      for (t.stages = s.is_flat() && t.warps < 16 ? 3 : 2; t.stages >= 2; --t.stages) {
        const Geometry g = tile::geometry_of(s, t, accumulator_bytes(problem.dtype));
        if (g.shared_bytes > device.shared_bytes_per_block || g.blocks > kMostBlocks) continue;
        if (!planes_are_taps && planes > 1 && g.chunks < planes) continue;
        if (visit(shape, t, g)) return true;
        break;
      }
    }
  }
  return false;
}

void append_choices(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s, int64_t planes,
                    bool planes_are_taps, std::vector<Choice>& choices) {
  const double sum = sum_us(s, planes, problem.dtype, device);
  for_each_tiling(problem, device, s, planes, planes_are_taps,
                  [&](const Shape& shape, const Tiling& t, const Geometry& g) {
                    choices.push_back({t, tile::predicted_us(problem, device, s, shape, t, g) + sum});
                    return false;
                  });
}

void append_best(const char* candidate, const ConvProblem& problem, const DeviceTraits& device,
                 const Sweep& s, std::vector<Choice>& choices, size_t most, std::vector<Plan>& plans) {
  keep_fastest(choices, most, &Choice::us);
  for (const Choice& choice : choices) {
    const Tiling& t = choice.tiling;
    Plan plan = plan_of(candidate, kTile, problem, device);
    for (const auto& [name, value] : {std::pair<const char*, int64_t>{"filters", t.filters},
                                      {"pixels", t.pixels},
                                      {"warps", t.warps},
                                      {"chunk", t.chunk},
                                      {"stages", t.stages},
                                      {"window_rows", t.rows},
                                      {"window_columns", t.columns},
                                      {"across", t.across},
                                      {"planes_are_taps", t.planes_are_taps},
                                      {"part", t.part}}) {
      plan.tiling.emplace_back(name, value);
    }
    add_planes(plan, problem, s, t.planes);
    plan.predicted_us = choice.us;
    plans.push_back(std::move(plan));
  }
}

// As a double: the product may pass 64 bits.
double bytes_of_planes(const Sweep& s, int64_t planes, DType dtype) {
  return planes == 1 ? 0
                     : static_cast<double>(planes) * static_cast<double>(s.results()) *
                           static_cast<double>(accumulator_bytes(dtype));
}

}  // namespace

bool within_budget(const Sweep& s, int64_t planes, DType dtype) {
  return bytes_of_planes(s, planes, dtype) <= static_cast<double>(workspace_limit());
}

// Each plane is written once and read once, mostly within the L2.
double sum_us(const Sweep& s, int64_t planes, DType dtype, const DeviceTraits& device) {
  if (planes == 1) return 0;
  const double bytes = 2.0 * static_cast<double>(planes * s.results() * accumulator_bytes(dtype));
  return stage_us(device) + bytes / (device.bandwidth_GBps * 1e3);
}

namespace {

// Of kernels whose lanes run along rows of planes.
void append_planes(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  constexpr size_t kMostOfCandidate = 4;
  const Sweep s = sweep_of(problem);
  std::vector<Choice> fused;
  append_choices(problem, device, s, 1, false, fused);
  append_best("fused", problem, device, s, fused, kMostOfCandidate, plans);

  std::vector<Choice> split;
  for (const int64_t planes : kPlanes) {
    if (within_budget(s, planes, problem.dtype)) append_choices(problem, device, s, planes, false, split);
  }
  append_best("split", problem, device, s, split, kMostOfCandidate, plans);

  if (within_budget(s, s.taps(), problem.dtype)) {
    std::vector<Choice> blocked;
    append_choices(problem, device, s, s.taps(), true, blocked);
    append_best("two_stage_blocked", problem, device, s, blocked, 1, plans);
  }
  append_published(problem, device, s, plans);
  append_tensor(problem, device, plans);
}

}  // namespace

void append_gpu(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  append_deep(problem, device, plans);
  if (problem.layout == Layout::nchw) append_planes(problem, device, plans);
}

bool has_gpu_plan(const ConvProblem& problem, const DeviceTraits& device) {
  if (problem.layout != Layout::nchw) return why_no_deep(problem, device).empty();
  const auto enough = [](const Shape&, const Tiling&, const Geometry&) { return true; };
  if (for_each_tiling(problem, device, sweep_of(problem), 1, false, enough)) return true;
  std::vector<Plan> plans;
  append_gpu(problem, device, plans);
  return !plans.empty();
}

std::string why_absent_on_gpu(const ConvProblem& problem, const DeviceTraits& device,
                              const std::string& candidate) {
  if (candidate == "deep") return why_no_deep(problem, device);
  if (problem.layout != Layout::nchw) return kNeedsPlanes;
  const bool by_taps = candidate == "two_stage" || candidate == "two_stage_blocked";
  if (!by_taps && candidate != "split") return "";
  const Sweep s = sweep_of(problem);
  const int64_t planes = by_taps ? s.taps() : kPlanes[0];
  if (within_budget(s, planes, problem.dtype)) return "";
  return "its " + std::to_string(planes) + " planes of partial sums take " +
         megabytes(bytes_of_planes(s, planes, problem.dtype)) + " MB, and CONVX_WORKSPACE_LIMIT_MB is " +
         megabytes(static_cast<double>(workspace_limit()));
}

}  // namespace convx::cuconv
