// Planning of channels_weight: how threads share out channels, columns, rows and images.
#include "../family.h"
#include "../weight_slices.h"
#include "cost.h"
#include "geometry.h"
#include "tiles.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  const std::string refusal = fast_weight_grad_refusal(problem, device, Layout::nhwc, 7);
  if (!refusal.empty()) return Support::no(refusal);
  constexpr int64_t kLimit = int64_t{1} << 30;  // 32-bit counts of threads, rows and units
  const ChannelsWeightGeometry geometry = channels_weight_geometry(problem, 1, 4, false, 1, 1);
  if (problem.in_width >= kLimit / 4 || std::max(problem.in_height, problem.out_height) >= kLimit / 4 ||
      problem.padding_top >= kLimit / 4 || problem.padding_left >= kLimit / 4 ||
      geometry.units(problem) >= kLimit || geometry.vectors * geometry.tiles >= kLimit ||
      problem.weight_elements() >= kLimit ||
      std::max(problem.in_width, problem.out_width) >= kLimit / 4 / problem.in_channels) {
    return Support::no("needs fewer than 2^30 rows of tiles, threads across and bytes of a row");
  }
  return Support::yes();
}

// Fraction of the lanes that have work, and of the bytes of a sector, with `across` threads side by side and
// blocks of up to `most` threads for `count` channel vectors (times tiles).
double lane_utilisation(int64_t count, int64_t across, int64_t most, int64_t vector_bytes, int64_t lanes) {
  const int64_t threads = most / across * across;
  double utilisation = static_cast<double>(count) / (divide_up(count, across) * across) * threads /
                       (divide_up(threads, lanes) * lanes);
  // Blocks that read less than a cache line of a pixel halved the bandwidth.
  if (across < count && across * vector_bytes < 96) utilisation *= 0.6;
  if (across < count && across * vector_bytes % 32 != 0) utilisation *= 0.95;
  return utilisation;
}

// Threads side by side for few idle lanes and whole sectors of memory.
int64_t choose_across(int64_t count, int64_t vector_bytes, int64_t lanes) {
  int64_t best = 1;
  double most = 0;
  for (int64_t across = std::min<int64_t>(count, kChannelsWeightSmallBlock);
       across >= std::min<int64_t>(count, 8); --across) {
    const double utilisation =
        lane_utilisation(count, across, kChannelsWeightSmallBlock, vector_bytes, lanes);
    if (utilisation > most) {
      best = across;
      most = utilisation;
    }
  }
  return best;
}

// A tile that channels_weight is compiled for, with a name where it competes with another.
struct Tile {
  const char* candidate;
  int64_t channels, columns;
};

// The tilings of one tile and way to lay tiles: the best that needs the second kernel and the best that
// sums in the block alone.
struct BestPlans {
  Plan sliced, once;
};

// Makes the plan of that time if it is the best so far.
template <class Make>
void keep_better(Plan& best, double us, const Make& make) {
  if (best.tiling.empty() || us < best.predicted_us) best = make();
}

// Blocks of `most` threads at most, of which `across` lie side by side.
void try_blocks(const ConvProblem& problem, const DeviceTraits& device, const Tile& tile, bool tiles_across,
                int64_t across, int64_t most, BestPlans& best) {
  const int64_t filter = problem.filter_height, stride = problem.stride_h;
  const int64_t element = element_size(problem.dtype), taps = filter * filter;
  const int64_t tiles = divide_up(problem.out_width, tile.columns);
  const double lanes_used = lane_utilisation(problem.in_channels / tile.channels * (tiles_across ? tiles : 1),
                                             across, most, tile.channels * element, device.lanes);
  const double stream = stream_us(problem, device, channels_weight_rate(problem));
  // A step's instructions of a warp: sums, loads with their addresses and masks.
  const double instructions = 1.2 * taps * tile.columns * tile.channels +
                              6.0 * (stride * ((tile.columns - 1) * stride + filter) + tile.columns);
  const int64_t steps = channels_weight_geometry(problem, 1, tile.columns, tiles_across, 1, 1).steps;
  int64_t last_rows = 0;
  for (int64_t pieces = 1; pieces <= 64; pieces *= 2) {
    const int64_t rows = divide_up(std::max<int64_t>(steps, 1), pieces);
    if (rows == last_rows) break;
    last_rows = rows;
    const ChannelsWeightGeometry geometry =
        channels_weight_geometry(problem, tile.channels, tile.columns, tiles_across, across, rows);
    const int64_t units = geometry.units(problem);
    const int64_t most_shares = std::min(most / across, units);
    const double partial_us =
        geometry.across_tiles * problem.weight_elements() * 8.0 / (device.bandwidth_GBps * 1e3);
    const double halo = pieces == 1 ? 0 : static_cast<double>(divide_up(filter, stride) - 1) / rows;
    for (int64_t shares = 1; shares <= most_shares;
         shares = shares < most_shares ? std::min(2 * shares, most_shares) : shares + 1) {
      const int64_t threads = divide_up(shares * across, device.lanes) * device.lanes;
      const int64_t resident =
          std::max(device.multiprocessors, 1) *
          std::max<int64_t>(
              1, channels_weight_resident(element, filter, stride, tile.channels, tile.columns) / threads);
      // Four schedulers share the warps of a block.
      const double together = std::max(1.0, threads / (4.0 * device.lanes));
      const double issue_us = together * instructions / device.busy_cycles_per_us();
      const ChannelsWeightWork work{
          stream, lanes_used,      issue_us, halo,  partial_us,           rows, stride, tile.channels,
          shares, geometry.blocks, resident, units, geometry.across_tiles};
      const auto plan_of = [&](const char* candidate, int64_t slices, double predicted_us) {
        Plan plan;
        plan.candidate = candidate;
        plan.kernel = kChannelsWeight;
        plan.tiling = {{"lanes", device.lanes},   {"channels", tile.channels},
                       {"columns", tile.columns}, {"tiles_across", tiles_across ? 1 : 0},
                       {"across", across},        {"rows", rows},
                       {"shares", shares},        {"slices", slices}};
        const int64_t partials = geometry.partials(slices);
        plan.workspace_bytes = partials == 1 ? 0 : partials * problem.weight_elements() * 4;
        plan.predicted_us = predicted_us;
        return plan;
      };
      if (geometry.across_tiles == 1) {
        const double us = channels_weight_us(work, 1);
        keep_better(best.once, us, [&] { return plan_of("channels_weight_once", 1, us); });
      }
      const Slices slices = best_slices(work);
      if (slices.count > 0) {
        keep_better(best.sliced, slices.predicted_us,
                    [&] { return plan_of(tile.candidate, slices.count, slices.predicted_us); });
      }
    }
  }
}

void append_tile(const ConvProblem& problem, const DeviceTraits& device, const Tile& tile,
                 BestPlans& best_of_all, std::vector<Plan>& plans) {
  const int64_t element = element_size(problem.dtype), taps = problem.filter_height * problem.filter_width;
  // The sums of a large block's shares go through shared memory, of which 48 KB need no opting in.
  const int64_t largest = std::min(channels_weight_threads(device.lanes, element, problem.filter_height,
                                                           problem.stride_h, tile.channels, tile.columns),
                                   48 * 1024 / (taps * 4) / device.lanes * device.lanes);
  const int64_t vectors = problem.in_channels / tile.channels;
  for (const bool tiles_across : {false, true}) {
    const int64_t tiles = divide_up(problem.out_width, tile.columns);
    if (tiles_across && tiles == 1) continue;
    BestPlans best;
    const int64_t count = vectors * (tiles_across ? tiles : 1);
    const int64_t usual = choose_across(count, tile.channels * element, device.lanes);
    try_blocks(problem, device, tile, tiles_across, usual, kChannelsWeightSmallBlock, best);
    if (!tiles_across) {
      try_blocks(problem, device, tile, false, usual, largest, best);
      for (int64_t across = 8; across < std::min<int64_t>(usual, 64); across *= 2) {
        try_blocks(problem, device, tile, false, across, largest, best);
      }
    }
    if (!best.sliced.tiling.empty()) plans.push_back(best.sliced);
    if (!best.once.tiling.empty()) {
      keep_better(best_of_all.once, best.once.predicted_us, [&] { return best.once; });
    }
  }
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const int64_t filter = problem.filter_height;
  const bool half = element_size(problem.dtype) == 2, even = problem.in_channels % 2 == 0;
  BestPlans best;
  const auto append_one = [&](const char* candidate, int64_t channels, int64_t columns) {
    append_tile(problem, device, {candidate, channels, columns}, best, plans);
  };
  if (filter == 7) {
    append_one("channels_weight", 1, 4);
  } else if (half && even) {
    if (channels_weight_fits(device.lanes, filter, 2, 7)) append_one("channels_weight", 2, 7);
    if (filter == 5) append_one("channels_weight_narrow", 2, 4);
  } else {
    append_one("channels_weight", 1, 7);
    if (!half && even && filter == 3 && problem.stride_h == 1) append_one("channels_weight_pairs", 2, 7);
  }
  if (!best.once.tiling.empty()) plans.push_back(best.once);
}

}  // namespace

const Family channels_weight_family = {"channels_weight", supports, append};

}  // namespace convx::depthwise
