// What a launch should take, from the cycles measured on an H200: a warp issues one instruction a cycle, and
// a register loaded from shared memory counts as one.
#pragma once
#include <algorithm>
#include <cmath>

#include "methods/hntmp/geometry.h"

namespace convx::hntmp {

// Issue slots of a warp for one staged source channel of each of its slots.
inline double stage_instructions(const Geometry& g, const Sweep& s, int64_t element_bytes) {
  const Tile& tile = g.tile;
  double products = static_cast<double>(tile.sums() * s.taps());
  double loads = 0, other = 60;
  if (tile.whole_filter()) {
    const int64_t outside = tile.staging == Staging::window ? 0 : tile.filter_width / 2;
    // Taps on the padding left and right, and in a whole image above and below, are not issued.
    const double across = 1 - 2.0 * static_cast<double>(outside) / (3.0 * tile.width);
    const double down = tile.staging == Staging::image ? 1 - 2.0 / (3.0 * tile.height) : 1;
    products *= across * down;
    loads = static_cast<double>(g.window_height * g.window_width + s.taps() * tile.filters);
  } else if (!tile.any()) {
    const int64_t row = (tile.width - 1) * tile.stride + tile.filter_width;
    loads = static_cast<double>(s.filter_height * (tile.height * row + s.filter_width * tile.filters));
    other += 15.0 * static_cast<double>(s.filter_height);
  } else {
    loads = static_cast<double>(s.taps() * (tile.pixels() + tile.filters));
    other += static_cast<double>(s.taps() * (tile.pixels() + 15));
  }
  if (tile.whole_filter() && element_bytes == 2) loads *= 2;  // each is widened
  return 1.08 * products + loads + other;
}

// Instructions that copy one stage; each takes seven cycles of its multiprocessor.
inline double stage_copies(const Geometry& g, const Sweep& s, const ConvProblem& problem) {
  const int64_t element_bytes = element_size(problem.dtype);
  const double lanes = static_cast<double>(g.lanes);
  const double positions = static_cast<double>(g.window_height * g.window_width);
  const double slots = static_cast<double>(g.slots());
  const double weights = static_cast<double>(g.tile.filters * s.taps() * element_bytes) / 16;
  if (problem.layout == Layout::nhwc) return std::ceil(slots * positions / lanes) + weights;
  if (g.tile.staging == Staging::image) {
    return slots * positions * static_cast<double>(element_bytes) / 16 / lanes + weights;
  }
  return slots * std::ceil(positions / (g.tile.pairs(element_bytes) ? 2 : 1) / lanes) + weights;
}

inline double predicted_us(const Geometry& g, const Sweep& s, const ConvProblem& problem,
                           const DeviceTraits& device) {
  const double processors = std::max(device.multiprocessors, 1), lanes = static_cast<double>(g.lanes);
  const bool cuda = device.backend == Backend::cuda;
  const int64_t bytes = element_size(problem.dtype);
  // fp32_TFLOPs is what a matrix product reaches, 0.78 of the peak. A cycle is the time in which all four
  // schedulers of a multiprocessor issue an instruction.
  const double peak = device.fp32_TFLOPs / 0.78 * 1e6 / (2 * processors);  // multiply-adds per us
  const double cycles_per_us = peak / (4 * lanes) / (problem.dtype == DType::float64 ? 2 : 1);

  const double warps = static_cast<double>(g.warps), blocks = static_cast<double>(g.blocks);
  const double registers =
      static_cast<double>(g.tile.sums() * (problem.dtype == DType::float64 ? 2 : 1) + 70);
  const double resident = std::max(
      1.0, std::floor(std::min(device.registers_per_multiprocessor / (registers * warps * lanes),
                               device.shared_bytes_per_multiprocessor /
                                   static_cast<double>(g.shared_bytes + DeviceTraits::kSharedReserve))));
  const double of_processor = std::ceil(blocks / processors);
  const double stages =
      std::ceil(static_cast<double>(g.channel_groups) / static_cast<double>(g.splits) / warps);
  const double busy = std::min(4.0, std::min(of_processor, resident) * warps);  // schedulers with a warp

  // Without asynchronous copies a stage's loads wait for memory, beside what other warps compute.
  const bool waits = !cuda || (bytes == 2 && g.tile.any());
  const double wait = waits ? 900 / std::max(1.0, std::min(of_processor, resident) * warps / 4) : 0;
  // A scheduler with one warp alone waits for shared memory (measured: a third more time than with two).
  const double alone = std::min(of_processor, resident) * warps < 8 ? 1.4 : 1.1;
  // In channels_last every element's place is computed anew.
  const double places = problem.layout == Layout::nhwc ? 12 * stage_copies(g, s, problem) : 0;
  const double issue =
      stages * of_processor * warps / busy * ((stage_instructions(g, s, bytes) + places) * alone + wait);
  const double copies = stages * of_processor * warps * stage_copies(g, s, problem) * 7;
  const double stage_traffic = static_cast<double>(g.slots() * g.window_height * g.window_width * bytes +
                                                   g.lanes * g.tile.filters * s.taps() * bytes);
  const double traffic = stages * of_processor * warps * stage_traffic / 26;  // L2 gives 26 bytes a cycle
  const double loop = std::max({issue, copies, traffic});

  const double block_sums = static_cast<double>(g.block_channels() * g.tile.pixels());
  const double first = 2300;
  const double last = 800 + 6.0 * g.tile.sums() + block_sums / (warps * lanes) * (8 * warps + 60);
  const double waves = std::ceil(of_processor / resident);
  const double ends = (first + last) * (1 + (waves - 1) * (resident > 1 ? 0.5 : 1));

  // Measured on ResNet's layers: one block of eight warps beats two of four and four of two on a
  // multiprocessor, by more than the schedulers' work explains.
  const double few_warps = warps >= 8 ? 0.88 : (warps >= 4 ? 1.05 : 1.15);
  double us = (cuda ? 1.0 : 4.0) + few_warps * (loop + ends) / cycles_per_us;
  if (g.splits > 1) {
    const double results = static_cast<double>(s.batch * s.groups * s.result_channels * s.result_height);
    const double sums = results * static_cast<double>(s.result_width * g.splits) * 4;
    us += (cuda ? 1.6 : 5.0) + 2 * sums / (device.bandwidth_GBps * 1e3);
  }
  return std::max(us, problem.bytes() / (device.bandwidth_GBps * 1e3) + 2);
}

}  // namespace convx::hntmp
