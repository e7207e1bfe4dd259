// What a deep kernel's launch takes.
#pragma once
#include <algorithm>

#include "methods/deep/geometry.h"
#include "methods/matrix/precision.h"
#include "problem/device.h"

namespace convx::deep {

// An estimate was up to 1.3 times off for the way that it prefers.
constexpr double kDoubt = 1.3;

// Of a warp, in microseconds: a step pair, and what each of its fragments adds, both with what taps and
// planes add to them. Planes without taps load all fragments together.
struct StepCost {
  double step, fragment, tap, plane, tap_plane_fragment;
};
inline StepCost step_cost(matrix::Precision precision) {
  if (precision == matrix::kSplit) return {.083, .105, .027, .088, .068};
  if (matrix::element_bytes(precision) == 4) return {.12, .049, .033, .058, .044};
  return {0, .031, .097, .34, .125};
}

// Fitted to 3748 ways to run 75 layers, half of them with taps, on an H200, in a network: to 6 % in the mean.
inline double kernel_us(const DeviceTraits& device, const matrix::Product& product,
                        matrix::Precision precision, bool taps, const Tiling& t, const Geometry& g,
                        double memory_bytes) {
  const int64_t element = matrix::element_bytes(precision);
  // Clusters of four and more find places for 120 blocks on 132 multiprocessors: they lie within a GPC.
  const int64_t all = std::max(device.multiprocessors, 1);
  const int64_t processors = t.ranks >= 4 ? std::max<int64_t>(all * 10 / 11, 1) : all;
  const int64_t at_once = divide_up(g.blocks, processors);
  const int64_t resident = element == 2 && t.fragments == 1 && !t.planes ? 2 : 1;  // by their registers
  const double rounds = static_cast<double>(divide_up(at_once, resident));
  const double steps = rounds * static_cast<double>(std::min(at_once, resident) * g.warp_pairs);
  const double fragments = static_cast<double>(t.fragments);

  const StepCost cost = step_cost(precision);
  double step = cost.step + cost.fragment * fragments + (taps ? cost.tap : 0);
  if (t.planes) step += taps ? cost.tap_plane_fragment * fragments : cost.plane;
  const double bytes = static_cast<double>(product.depth * element) / static_cast<double>(t.ranks) *
                       static_cast<double>(kPairFilters + g.pixels) *
                       std::max(static_cast<double>(g.blocks) / static_cast<double>(all), 1.0);
  const double of_cluster = t.ranks > 1 ? .67 + .03 * static_cast<double>(t.ranks) : 0;
  return 2.1 + (taps ? .23 : 0) + (t.planes ? .195 + (taps ? .634 : 0) : 0) + of_cluster +
         (rounds - 1) * (t.ranks > 1 ? 2.7 : 1.5) + steps * step + 3.3e-6 * bytes +
         .4 * memory_bytes / (device.bandwidth_GBps * 1e3);
}

}  // namespace convx::deep
