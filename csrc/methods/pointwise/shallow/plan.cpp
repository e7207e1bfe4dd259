#include <algorithm>
#include <cmath>
#include <string>

#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/access.h"
#include "methods/shallow/geometry.h"
#include "plan/append_fastest.h"

namespace convx::pointwise {
namespace {

using shallow::Geometry;
using shallow::Tiling;

constexpr size_t kMostPlans = 2;

bool is_one(const ConvProblem& p, const Product& product, const DeviceTraits& device) {
  return p.operation != Operation::weight_grad && p.layout == Layout::nhwc && element_size(p.dtype) == 2 &&
         p.groups == 1 && product.same_pixels && !p.epilogue.is_more_than_bias() &&
         matrix::has_units(device) && product.depth % 8 == 0 && product.rows % 8 == 0 &&
         product.depth <= shallow::kMostPairs * 32;
}

int64_t resident_blocks(const DeviceTraits& device, const Geometry& g) {
  const int64_t threads = shallow::kWarps * device.lanes;
  return std::clamp<int64_t>(
      std::min(device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve),
               device.threads_per_multiprocessor / threads),
      1, shallow::kMostBlocks);
}

// Fitted to 93 plans of 50 problems drawn at random, on an H200, to 11 % in the mean.
double predicted_us(const ConvProblem& problem, const DeviceTraits& device, const Product& product,
                    const Tiling& t) {
  const Geometry g = geometry_of(product, t);
  const double fragments = static_cast<double>(g.pixels) / 8, steps = static_cast<double>(2 * g.step_pairs);
  const Activation activation = problem.epilogue.activation;
  // Of a value: an addition, the activation, its part of a store.
  const double finishing = activation <= Activation::relu6 ? 4 : activation == Activation::gelu ? 18 : 9;
  // A warp's instructions: for its pixels, and for a pair of fragments of filters with them. Each of the
  // latter's reads, of 512 bytes, is worth eight.
  const double reads = fragments * (steps / 2 * 3 + 6) + 30;
  const double pair = steps * (2 * 8.6 + 2 * fragments * 2) + fragments * (8 * finishing + 12) + 20;
  const double turn = reads + pair * static_cast<double>(std::min(t.block_pairs, g.pairs));
  const double turns = static_cast<double>(divide_up(divide_up(g.groups, t.pixel_blocks), shallow::kWarps));
  const double processors = std::max(device.multiprocessors, 1);
  const double resident = static_cast<double>(resident_blocks(device, g));
  const double beside = std::min(resident, std::ceil(static_cast<double>(g.blocks) / processors));
  const double waves = std::ceil(static_cast<double>(g.blocks) / (processors * resident));
  constexpr double kBytesPerCycle = 60;  // of a multiprocessor, from the L2 cache
  // A scheduler has a warp of each block.
  const double cycles = waves * (2300 + static_cast<double>(g.shared_bytes) * beside / kBytesPerCycle +
                                 turns * turn * std::max(1.42 * beside, 1.6));
  return std::max(1.0 + cycles / device.busy_cycles_per_us(),
                  1.9 + 1.62 * problem.bytes() / (device.bandwidth_GBps * 1e3));
}

}  // namespace

void append_shallow(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  if (!is_one(problem, product, device)) return;
  std::vector<Plan> some;
  const matrix::Precision precision = matrix::precision_of(problem, device);
  const int64_t pairs = divide_up(product.rows, shallow::kPairFilters);
  int64_t before = 0;
  for (int64_t splits = 1; splits <= pairs; ++splits) {
    Tiling t{device.lanes, divide_up(pairs, splits), 1};
    if (t.block_pairs == before) continue;
    before = t.block_pairs;
    const Geometry one = geometry_of(product, t);
    if (one.shared_bytes > device.shared_bytes_per_block) continue;
    const int64_t places = resident_blocks(device, one) * std::max(device.multiprocessors, 1);
    t.pixel_blocks = shallow::pixel_blocks_of(one, places);
    Plan plan;
    plan.candidate = "shallow";
    plan.kernel = kShallow;
    plan.tiling = {{"precision", precision},
                   {"access", tensor::kChannels},
                   {"block_pairs", t.block_pairs},
                   {"pixel_blocks", t.pixel_blocks},
                   {"lanes", t.lanes}};
    plan.packing = tensor::packing_name(precision, tensor::Form<tensor::kChannels>::kOrder, device.lanes);
    plan.packed_weight_bytes = one.pairs * one.step_pairs * 2048;
    plan.predicted_us = predicted_us(problem, device, product, t);
    // Torch's product alone is faster than all but the largest gradients.
    if (problem.operation == Operation::forward) trust(plan, device, 1.25);
    some.push_back(std::move(plan));
  }
  append_fastest(plans, std::move(some), kMostPlans);
}

}  // namespace convx::pointwise
