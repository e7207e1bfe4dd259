// What a way to use a tile costs.
#pragma once
#include <algorithm>
#include <cmath>

#include "methods/cuconv/tensor/geometry.h"
#include "problem/device.h"

namespace convx::cuconv::tensor {

// Of a launch, in microseconds, and what its blocks do, in cycles: fitted to some 3100 ways of 13 layers of
// one tap and 13 of several, at batch 1, 8 and 32 in bfloat16 and TF32 on an H200. The way with the least
// takes 3 % longer than the fastest where there is one tap, else 1.4 %; 1.1 % among 268 ways that bring pairs
// of places, to which nothing was fitted. tail and overlap are of waves.
struct Cost {
  double launch_us, begin, segment, latency, instruction, product, byte, place, sum, odd_sum, tail, overlap;
};
constexpr double kTapLatency = 100;  // of products that are waited for
constexpr Cost kOneTap = {.72, 3170, 885, 716, .83, 2, .0203, 4.9, 59.3, 19.5, .436, .082};
constexpr Cost kTaps = {1.17, 3990, 581, 488, .854, 1.1, .0242, 8.21, 47.4, 16.1, .473, .157};

template <Precision Kind, class Tile>
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Sweep& s,
                    const Geometry& g) {
  const Cost& cost = s.taps() == 1 ? kOneTap : kTaps;
  const double units = std::max(device.multiprocessors, 1);
  const double cycles = device.clock_MHz * (1830.0 / 1980);  // in a microsecond, as an H200 had it
  const int64_t by_shared =
      device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve);
  const double fitting = static_cast<double>(std::clamp<int64_t>(by_shared, 1, Tile::kBlocks));
  const double blocks = static_cast<double>(g.blocks);
  const double resident = std::min(fitting, std::ceil(blocks / units));
  const double waves = std::max(1.0, blocks / (units * resident));
  const double rounds =
      waves < 2.5 ? std::ceil(waves) - (std::ceil(waves) - waves) * cost.overlap : waves + cost.tail;
  const double taps = static_cast<double>(g.stage_taps), segments = static_cast<double>(g.segments);
  const double places = static_cast<double>(g.depth * g.places), batches = static_cast<double>(g.batches);
  // Of a segment, then of a stage: products, the way of their operands, or what loads the source.
  // Of the split precision three for one, and then their threads wait for them and add them up.
  const double tap_products = Tile::kGroups * Tile::kColumns * cost.product;
  const double tap = Kind == matrix::kSplit ? 3 * tap_products + Tile::kSums + kTapLatency : tap_products;
  const double products = taps * tap / segments;
  const double alone = cost.segment + products, together = resident * products;
  const double instructions = Tile::kLoaders / 32 * items_each<Kind, Tile>(g.together) * step_channels(Kind);
  const double loads = cost.latency + resident * instructions * cost.instruction;
  const double bytes = taps * Tile::kGroups * filter_tile_bytes(Kind) + places * 64;
  const double stage = std::max(batches * std::max({together, loads, alone}) +
                                    (segments - batches) * std::max(together, alone),
                                resident * bytes * cost.byte) +
                       resident * places * cost.place;
  // Results of a thread: those of odd planes are written one by one.
  const double sums = static_cast<double>(Tile::kFilters * Tile::kSumPitch) / Tile::kThreads;
  const double sum = cost.sum + (s.result_plane() % 4 == 0 ? 0 : cost.odd_sum);
  const double block = static_cast<double>(g.plane_stages) * stage + cost.begin + resident * sums * sum;
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3);
  return cost.launch_us + std::max(rounds * block / cycles, memory);
}

}  // namespace convx::cuconv::tensor
