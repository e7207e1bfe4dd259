// What a tiling of channels_weight costs. The constants are fitted to 3300 times of an H200: 100 problems,
// D1-30 at N = 1, 16 and 64 and CONV1-13 at 512; the tiling of least cost then took 1.05 of the least time.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../weight_slices.h"
#include "problem/problem.h"

namespace convx::depthwise {

struct ChannelsWeightWork {
  double stream_us;   // of the traffic or the arithmetic, were all lanes at work
  double lanes_used;  // fraction of the lanes, and of the bytes of a sector
  double issue_us;    // of a warp's instructions of a step
  double halo;        // rows of the output gradient that a chunk reads again, of its own
  double partial_us;  // time to write and read one slice's sums
  int64_t steps;      // of a thread in a unit
  int64_t stride;
  int64_t channels;      // of a thread
  int64_t shares;        // threads of a block that share out units
  int64_t blocks;        // of one slice
  int64_t resident;      // blocks that the device runs at once
  int64_t units;         // of one slice, if there were one
  int64_t across_tiles;  // copies of the sums that a slice leaves
};

// Share of the device's rates, were all lanes at work.
inline double channels_weight_rate(const ConvProblem& problem) {
  const bool half = problem.dtype != DType::float32;
  if (problem.filter_height == 3) return half ? 1.05 : 1.1;
  if (problem.filter_height == 5) return half ? 0.65 : 1.35;
  return half ? 0.4 : 0.8;
}

inline double channels_weight_us(const ChannelsWeightWork& work, int64_t slices) {
  const double waves = static_cast<double>(work.blocks * slices) / work.resident;
  const int64_t rounds = divide_up(divide_up(work.units, slices), work.shares);
  // Threads without a unit in the last round.
  const double idle = static_cast<double>(rounds * work.shares * slices) / work.units - 1;
  const double streaming = work.stream_us / std::pow(work.lanes_used, 0.2) * (1 + 0.1 * work.halo) *
                           (1 + 0.1 * idle) / std::min(1.0, 1.37 * waves);
  const double step_us = std::max(0.585 * work.stride, 0.4 * work.issue_us);
  const double walking = rounds * (1.07 + work.steps * step_us) * std::ceil(waves);
  const int64_t partials = slices * work.across_tiles;
  // The second kernel has 128 loads of an output's sums in flight.
  const double summing = partials > 1 ? 1.8 + work.partial_us * slices + 0.6 * (partials / 128) : 0;
  const double sharing = work.shares > 1 ? 0.225 * work.channels + 0.004 * work.shares : 0;
  return 2.05 + std::max(streaming, walking) + 0.24 * std::min(streaming, walking) +
         1.7 * (std::ceil(waves) - 1) + summing + sharing;
}

// The best number of slices that leaves more than one copy of the sums: those that fill the device once or in
// part, twice or four times, and those whose threads all have units in every round. None where its count is
// 0.
inline Slices best_slices(const ChannelsWeightWork& work) {
  Slices best{0, 0};
  const auto attempt = [&](int64_t slices) {
    slices = std::clamp<int64_t>(slices, 1, divide_up(work.units, work.shares));
    if (slices * work.across_tiles == 1) return;
    const double us = channels_weight_us(work, slices);
    if (best.count == 0 || us < best.predicted_us) best = {slices, us};
  };
  for (double waves = 0.125; waves <= 4; waves *= 2) {
    attempt(static_cast<int64_t>(work.resident * waves / work.blocks));
  }
  for (int64_t rounds = 1; rounds <= 8; ++rounds) attempt(divide_up(work.units, work.shares * rounds));
  return best;
}

}  // namespace convx::depthwise
