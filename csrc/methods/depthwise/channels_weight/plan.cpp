// Planning of channels_weight: how threads share out channels, columns, rows and images.
#include "../family.h"
#include "../weight_slices.h"
#include "geometry.h"
#include "tiles.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  const std::string refusal = fast_weight_grad_refusal(problem, device, Layout::nhwc, 7);
  if (!refusal.empty()) return Support::no(refusal);
  constexpr int64_t kLimit = int64_t{1} << 30;  // 32-bit counts of threads, rows and units
  const ChannelsWeightGeometry geometry = channels_weight_geometry(problem, 1, 4, false, 1, 1);
  if (problem.in_width >= kLimit / 4 || problem.in_height >= kLimit / 4 ||
      problem.padding_top >= kLimit / 4 || problem.padding_left >= kLimit / 4 ||
      geometry.units(problem) >= kLimit || geometry.vectors * geometry.tiles >= kLimit ||
      problem.weight_elements() >= kLimit) {
    return Support::no("needs fewer than 2^30 rows of tiles and 2^30 threads across");
  }
  return Support::yes();
}

struct Across {
  int64_t threads;     // across a block
  double utilisation;  // fraction of the lanes that have work
};

// Threads across a block for `count` channel vectors (times tiles): few idle lanes, whole sectors of memory.
Across choose_across(int64_t count, int64_t vector_bytes, int64_t lanes) {
  Across best{1, 0};
  for (int64_t across = std::min<int64_t>(count, kChannelsWeightThreads);
       across >= std::min<int64_t>(count, 8); --across) {
    const int64_t threads = kChannelsWeightThreads / across * across;
    double utilisation = static_cast<double>(count) / (divide_up(count, across) * across) * threads /
                         (divide_up(threads, lanes) * lanes);
    // Blocks that read less than a cache line of a pixel halved the bandwidth.
    if (across < count && across * vector_bytes < 96) utilisation *= 0.6;
    if (across < count && across * vector_bytes % 32 != 0) utilisation *= 0.95;
    if (utilisation > best.utilisation) best = {across, utilisation};
  }
  return best;
}

// Fraction of the floor on an H200 where every lane has work.
double efficiency(const ConvProblem& problem) {
  const bool half = element_size(problem.dtype) == 2;
  if (problem.filter_height == 3) return half ? 0.75 : 0.85;
  if (problem.filter_height == 5) return half ? 0.5 : 0.7;
  return half ? 0.3 : 0.4;
}

void append_tiling(const ConvProblem& problem, const DeviceTraits& device, int64_t channels, int64_t columns,
                   bool tiles_across, std::vector<Plan>& plans) {
  const int64_t tiles = divide_up(problem.out_width, columns);
  const Across across = choose_across(problem.in_channels / channels * (tiles_across ? tiles : 1),
                                      channels * element_size(problem.dtype), device.lanes);
  const int64_t blocks_of_registers =
      channels_weight_blocks(channels, problem.filter_height, problem.stride_h, columns);
  const int64_t ring = divide_up(problem.filter_height, problem.stride_h);
  const double used_columns = static_cast<double>(problem.out_width) / (tiles * columns);
  const double stream =
      stream_us(problem, device, efficiency(problem) * across.utilisation * (0.5 + 0.5 * used_columns));
  Plan best;
  int64_t last_rows = 0;
  for (int64_t pieces = 1; pieces <= 32; pieces *= 2) {
    const int64_t steps = channels_weight_geometry(problem, channels, columns, tiles_across, 1, 1).steps;
    const int64_t rows = divide_up(std::max<int64_t>(steps, 1), pieces);
    if (rows == last_rows) break;
    last_rows = rows;
    const ChannelsWeightGeometry geometry =
        channels_weight_geometry(problem, channels, columns, tiles_across, across.threads, rows);
    const int64_t units = geometry.units(problem);
    const int64_t most_shares = std::min(kChannelsWeightThreads / across.threads, units);
    const double partial_us =
        geometry.across_tiles * problem.weight_elements() * 8.0 / (device.bandwidth_GBps * 1e3);
    // Each chunk reads the output rows before it again.
    const double halo = pieces == 1 ? 1 : 1 + 0.5 * (ring - 1) / rows;
    for (int64_t shares = 1; shares <= most_shares;
         shares = shares < most_shares ? std::min(2 * shares, most_shares) : shares + 1) {
      const int64_t threads = divide_up(shares * across.threads, device.lanes) * device.lanes;
      const int64_t resident = std::max(device.multiprocessors, 1) *
                               std::max<int64_t>(1, blocks_of_registers * kChannelsWeightThreads / threads);
      const double round_us =
          0.5 * problem.stride_h * (rows + 1) + 0.3;  // one row's loads in flight at a time
      Slices slices = choose_slices({geometry.blocks, divide_up(units, shares), resident, 2, round_us,
                                     stream * halo, partial_us, geometry.across_tiles});
      slices.predicted_us += 0.1 * (shares - 1);  // they add up in turn
      if (!best.tiling.empty() && slices.predicted_us >= best.predicted_us) continue;
      best.candidate = "channels_weight";
      best.kernel = kChannelsWeight;
      best.tiling = {{"lanes", device.lanes},    {"channels", channels},
                     {"columns", columns},       {"tiles_across", tiles_across ? 1 : 0},
                     {"across", across.threads}, {"rows", rows},
                     {"shares", shares},         {"slices", slices.count}};
      const int64_t partials = geometry.partials(slices.count);
      best.workspace_bytes = partials == 1 ? 0 : partials * problem.weight_elements() * 4;
      best.predicted_us = slices.predicted_us;
    }
  }
  plans.push_back(best);
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const auto append_both = [&](int64_t channels, int64_t columns) {
    append_tiling(problem, device, channels, columns, false, plans);
    if (problem.out_width > columns) append_tiling(problem, device, channels, columns, true, plans);
  };
  if (problem.filter_height == 7) return append_both(1, 4);
  const bool pairs = element_size(problem.dtype) == 2 && problem.in_channels % 2 == 0;
  if (pairs && problem.filter_height == 5) append_both(2, 4);
  append_both(pairs ? 2 : 1, 7);
}

}  // namespace

const Family channels_weight_family = {"channels_weight", supports, append};

}  // namespace convx::depthwise
