// What a launch of the tile kernel should take.
#pragma once
#include <algorithm>
#include <cmath>

#include "methods/cuconv/tile/geometry.h"

namespace convx::cuconv {

// What a device's multiprocessor does in a cycle, from the H200's measured rates.
struct Clock {
  double cycles_per_us, processors;
  static Clock of(const DeviceTraits& device) {
    const double processors = std::max(device.multiprocessors, 1);
    // fp32_TFLOPs is that of a matrix product, which reaches 0.85 of what multiply-adds alone do.
    return {device.fp32_TFLOPs * 1e6 / (processors * 256 * 0.85), processors};
  }
};

// A launch, and the first data's way through a cold memory.
constexpr double kLaunch_us = 1.0, kFirstData_us = 1.1;

}  // namespace convx::cuconv

namespace convx::cuconv::tile {

// Without the sum of planes. Fitted to 12300 times of 150 layers at batch 1, 8 and 32 in exact float32 on an
// H200: the fused tile of least cost takes 1.02, 1.08 and 1.06 times as long as the fastest of some 30 in the
// mean, the split one 1.06, 1.05 and 1.04.
inline double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                           const Shape& shape, const Tiling& t, const Geometry& g) {
  const Clock clock = Clock::of(device);
  const double wide = problem.dtype == DType::float64 ? 2 : 1;
  const double lanes = static_cast<double>(t.lanes);
  // Of a warp and a chunk: cycles of a scheduler, and of the multiprocessor's path to memory (a register
  // loaded from shared memory is less than one, so is a sector of 32 bytes).
  const double fours = static_cast<double>(g.reduction) / 4;
  const double filters = shape.filters, pixels = shape.pixels;
  const double loads = 4 * (pixels + filters) * wide + 4;
  const double weight_values =
      static_cast<double>(std::min(g.block_filters, s.result_channels) * g.reduction);
  const bool wide_weights = g.windows() == 1 && g.reduction % 4 == 0 && s.source_channels * s.taps() % 4 == 0;
  const double source_values = static_cast<double>(t.chunk * (g.flat ? g.block_pixels : g.positions));
  const double copies = std::ceil(weight_values / (wide_weights ? 4 : 1) / lanes) +
                        std::ceil(source_values / (g.flat ? 4 : 1) / lanes);
  const double issue = fours * (4.4 * filters * pixels * wide + 2 * loads + filters + 5) + copies * 40;
  const double row = static_cast<double>(g.flat ? g.block_pixels : t.across * t.pixels);
  const double sectors = g.flat ? static_cast<double>(t.chunk) * (row / 8 + 1) : source_values / 6;
  const double path = fours * loads * 0.83 + copies * 5.7 + sectors * 0.35;
  // Chunks of the busiest warp, all windows together.
  const int64_t planes_of_channels = t.planes_are_taps != 0 ? 1 : t.planes;
  const int64_t warp_chunks = divide_up(divide_up(g.chunks, planes_of_channels), t.warps);
  const double turns = static_cast<double>(warp_chunks * (t.planes_are_taps != 0 ? 1 : g.windows()));
  const double parts = t.part == 0 ? 0 : static_cast<double>(divide_up(warp_chunks, t.part));

  const int64_t by_shared =
      device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve);
  const int64_t by_registers = device.registers_per_multiprocessor / (shape.registers * t.warps * t.lanes);
  const int64_t by_threads = device.threads_per_multiprocessor / (t.warps * t.lanes);
  const int64_t fitting = std::max<int64_t>(std::min({by_shared, by_registers, by_threads, int64_t{16}}), 1);
  const int64_t processors = std::max(device.multiprocessors, 1);
  const int64_t resident = std::min(fitting, divide_up(g.blocks, processors));
  const double waves =
      std::max(1.0, static_cast<double>(g.blocks) / static_cast<double>(processors * resident));
  const double warps = static_cast<double>(resident * t.warps);
  // One warp alone on a scheduler waits for its own loads; three and more fill each other's gaps.
  const double gaps = fours * (warps <= 4 ? 390 : 8 < warps && warps <= 12 ? 100 : 0);
  const double shared_issue = issue * (warps > 8 ? 0.7 : 1);
  const double turn = std::max(std::ceil(warps / 4) * shared_issue + gaps, warps * path);
  const double sums = static_cast<double>(g.block_filters * g.block_pixels) * wide;
  // A row of results begins and ends within a sector.
  const double stores = static_cast<double>(g.block_filters * g.down) * (std::ceil(row / 8) + 1);
  const double finish =
      200 + parts * 1500 +
      static_cast<double>(resident) * (sums * static_cast<double>(t.warps) * 0.26 + stores * 4.2);
  const double setup = 200 + static_cast<double>(2 * g.reduction + g.positions) / lanes /
                                 static_cast<double>(t.warps) * 500 * static_cast<double>(g.windows());
  const double rounds = waves < 1.5 ? std::ceil(waves) : waves + 0.35;
  const double compute = rounds * (turns * (turn + 300) + finish + setup) / clock.cycles_per_us;
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  return kLaunch_us + kFirstData_us + std::max(compute, memory);
}

}  // namespace convx::cuconv::tile
