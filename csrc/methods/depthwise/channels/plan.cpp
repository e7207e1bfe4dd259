#include <algorithm>
#include <string>
#include <utility>

#include "methods/depthwise/channels/tiles.h"
#include "methods/depthwise/channels_support.h"
#include "methods/depthwise/family.h"
#include "methods/short_epilogue.h"
#include "problem/divide.h"

namespace convx::depthwise {
namespace {

using channels::Tile;

constexpr int64_t kThreads = 128;

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support support = supports_channels(problem, device); !support.ok) return support;
  const int64_t filter = problem.filter_height, stride = problem.stride_h;
  if (filter != problem.filter_width || (filter != 3 && filter != 5 && filter != 7)) {
    return Support::no("filter must be 3x3, 5x5 or 7x7");
  }
  if (stride != problem.stride_w || stride > 2) return Support::no("stride must be (1, 1) or (2, 2)");
  return Support::yes();
}

// What a tile has to read, and to do, for one result of a lane.
struct Work {
  int64_t sources, results;  // pixels
  double instructions;       // of a warp
  double rounds;             // of loads that wait for each other
};

int64_t source_extent(int64_t filter, int64_t stride, bool transposed, int64_t results) {
  return transposed ? (results + filter - 2) / stride + 1 : stride * (results - 1) + filter;
}

Work work_of(int64_t filter, int64_t stride, bool transposed, int64_t lane_channels, const Tile& tile) {
  const int64_t rows = source_extent(filter, stride, transposed, tile.rows);
  Work work;
  work.sources = rows * source_extent(filter, stride, transposed, tile.columns);
  work.results = static_cast<int64_t>(tile.rows) * tile.columns;
  const double taps =
      static_cast<double>(filter * filter) / static_cast<double>(transposed ? stride * stride : 1);
  const double factors = tile.resident ? 0 : 3 * taps / tile.columns;  // reading the filter again
  work.instructions = static_cast<double>(work.results * lane_channels) * (taps + factors + 3) +
                      static_cast<double>(work.sources) * (4 + static_cast<double>(lane_channels));
  work.rounds = std::max(1.0, static_cast<double>(rows) / (tile.depth + 1));
  return work;
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const bool gradient = problem.operation == Operation::input_grad;
  const int64_t stride = problem.stride_h, filter = problem.filter_height;
  const bool transposed = gradient && stride > 1;
  const bool half = problem.dtype != DType::float32;
  const bool pairs = half && problem.in_channels % 2 == 0;
  const int64_t lane_channels = pairs ? 2 : 1;
  for (const channels::TileSize size :
       {channels::kLarge, channels::kSmall, channels::kMedium, channels::kTiny}) {
    const Tile tile =
        channels::tile_of(static_cast<int>(filter), static_cast<int>(stride), transposed, pairs, size);
    // One channel a lane of 16 bits is for odd channel counts: the small tile will do.
    if (tile.columns == 0 || (size != channels::kSmall && !has_short_epilogue(problem))) continue;
    if (half && !pairs && size != channels::kSmall) continue;
    const int64_t height =
        gradient ? problem.in_height + (transposed ? problem.padding_top % stride : 0) : problem.out_height;
    const int64_t width =
        gradient ? problem.in_width + (transposed ? problem.padding_left % stride : 0) : problem.out_width;
    const int64_t column_tiles = divide_up(width, tile.columns), row_tiles = divide_up(height, tile.rows);
    const int64_t units = problem.batch * row_tiles;
    if (column_tiles * units == 0) continue;
    const int64_t blocks = divide_up(problem.in_channels / lane_channels * column_tiles, kThreads);
    const int64_t multiprocessors = std::max(1, device.multiprocessors);
    const double cycles_per_us = device.busy_cycles_per_us();
    const int64_t resident_blocks = multiprocessors * tile.blocks;

    // Cache traffic: halos are read again, edges are computed for nothing; 1.5 times the memory's rate.
    const Work work = work_of(filter, stride, transposed, lane_channels, tile);
    const double element_bytes = half ? 2 : 4;
    const double lanes = static_cast<double>(blocks * kThreads * lane_channels * units);
    const double cache_bytes = lanes * element_bytes * static_cast<double>(work.sources + work.results);
    const double memory = std::max(problem.bytes() / 0.8, cache_bytes / 1.5) / (device.bandwidth_GBps * 1e3);

    const bool staged = channels::is_staged(static_cast<int>(filter), size);
    // To bring a tap to its lane, by way of shared memory or straight; as measured.
    const double tap_cycles = staged ? 25 : 4 * static_cast<double>(lane_channels);
    // Slices that give one, two or four waves of blocks: more even out their ends, fewer load filters seldom.
    int64_t slices = 1;
    double latency = 0;
    for (const int64_t waves : {1, 2, 4}) {
      const int64_t some = std::clamp<int64_t>(resident_blocks * waves / blocks, 1, units);
      const int64_t total = blocks * some;
      // Warps of a scheduler: a block is one each.
      const int64_t beside = std::min<int64_t>(tile.blocks, divide_up(total, multiprocessors));
      const double alone = work.rounds * 0.7 + work.instructions * (staged ? 1.5 : 2) / cycles_per_us;
      const double together = static_cast<double>(beside) * work.instructions / cycles_per_us;
      const double prologue =
          0.5 + static_cast<double>(beside * filter * filter) * tap_cycles / cycles_per_us;
      const double us = static_cast<double>(divide_up(total, resident_blocks)) *
                        (prologue + static_cast<double>(divide_up(units, some)) * std::max(alone, together)) *
                        (1 + 0.15 / static_cast<double>(waves));  // uneven ends
      if (waves == 1 || us < latency) {
        latency = us;
        slices = some;
      }
    }

    Plan plan;
    // Tiles with all rows in flight are another kernel, to the timings.
    plan.candidate = size == channels::kLarge ? "channels_large" : "channels_small";
    plan.kernel = kChannels;
    plan.tiling = {{"lanes", device.lanes},   {"tile", size},      {"channels", lane_channels},
                   {"columns", tile.columns}, {"rows", tile.rows}, {"slices", slices}};
    plan.predicted_us = std::max(memory, latency) + 0.25 * std::min(memory, latency) + 1.5;
    if (filter == 7 && stride == 1) trust(plan, device, 1.1);
    plans.push_back(std::move(plan));
  }
}

}  // namespace

const Family channels_family = {"channels", supports, append};

}  // namespace convx::depthwise
