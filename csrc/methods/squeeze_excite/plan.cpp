#include <algorithm>
#include <cmath>

#include "methods/gates/geometry.h"
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx::squeeze_excite {
namespace {

using namespace gates;

// Of blocks, and of places in an image, behind which a thread's steps go on.
constexpr int64_t kLimit = (int64_t{1} << 31) - (1 << 16);

Support supports(const ExciteProblem& p, const DeviceTraits& device) {
  if (p.batch == 0) return Support::no("the batch is empty");
  if (device.backend == Backend::cpu) return Support::yes();
  if (p.dtype == DType::float64) return Support::no("on GPUs dtype must be float32, float16 or bfloat16");
  const int64_t vector = kVectorBytes / element_size(p.dtype);
  if (p.channels % vector != 0 || p.channels / vector > kThreads) {
    return Support::no("channels must be a multiple of " + std::to_string(vector) + " and at most " +
                       std::to_string(vector * kThreads) + ", not " + std::to_string(p.channels));
  }
  if (p.batch >= kLimit / 8 || p.channels * p.pixels() >= kLimit || p.squeezed_channels >= kLimit / 16) {
    return Support::no("places in an image, or the number of blocks, need more than 31 bits");
  }
  if (geometry_of(p, {device.lanes, 1, false, false, false}).shared_bytes > device.shared_bytes_per_block) {
    return Support::no("squeezed_channels are too many for a block's shared memory: " +
                       std::to_string(p.squeezed_channels));
  }
  return Support::yes();
}

// A block waits for its parts, for what the other blocks have found, and for the matrices' values.
double predicted_us(const ExciteProblem& p, const DeviceTraits& device, const Tiling& t) {
  const double phases = t.stages_matrices ? 2.5 : 5;
  constexpr double kBytesPerCycle = 60;  // of a multiprocessor, from the L2 cache
  const Geometry g = geometry_of(p, t);
  const double element = static_cast<double>(element_size(p.dtype));
  const double image = static_cast<double>(p.channels * p.pixels()) * element;
  const double matrices = 2 * static_cast<double>(p.channels * p.squeezed_channels) * element;
  const double ranks = static_cast<double>(t.ranks);
  const double bytes = image * (t.stages_image ? 2 : 3) / ranks + matrices / (t.shares_pixels ? 1 : ranks);
  const int64_t resident = std::clamp<int64_t>(
      device.shared_bytes_per_multiprocessor / (g.shared_bytes + DeviceTraits::kSharedReserve), 1, 4);
  const int64_t blocks = p.batch * t.ranks, multiprocessors = std::max(1, device.multiprocessors);
  const int64_t beside = std::min(resident, divide_up(blocks, multiprocessors));
  const double waves = static_cast<double>(divide_up(blocks, resident * multiprocessors));
  const double copying = bytes / (kBytesPerCycle * device.busy_cycles_per_us());
  const double compute = waves * (phases + (t.ranks > 1 ? 1.0 : 0.0) + static_cast<double>(beside) * copying);
  return 1.5 + std::max(compute, p.bytes() / (device.bandwidth_GBps * 1e3));
}

// Whether each block of a cluster has a part of the image.
bool is_shared_out(const ExciteProblem& p, const Tiling& t) {
  const Geometry g = geometry_of(p, t);
  return t.shares_pixels ? (t.ranks - 1) * g.own_pixels < p.pixels()
                         : (t.ranks - 1) * g.own_channels < p.channels;
}

std::vector<Plan> candidates(const ExciteProblem& p, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return {cpu_plan(p, device)};
  std::vector<Plan> plans;
  const auto append = [&](Tiling t) {
    const auto fits = [&] { return geometry_of(p, t).shared_bytes <= device.shared_bytes_per_block; };
    if (!fits()) t.stages_matrices = false;
    if (!fits() || !is_shared_out(p, t)) return;
    Plan plan;
    plan.method = &method;
    plan.tiling = {{"lanes", t.lanes},
                   {"ranks", t.ranks},
                   {"pixels", t.shares_pixels},
                   {"image", t.stages_image},
                   {"matrices", t.stages_matrices}};
    plan.predicted_us = predicted_us(p, device, t);
    plans.push_back(std::move(plan));
  };
  for (int64_t ranks = 1; ranks <= device.most_cluster_blocks(); ranks *= 2) {
    // Large clusters are for few images: several of them wait for places beside one another.
    if (ranks > kPortableClusterBlocks && p.batch * ranks > device.multiprocessors) break;
    for (const bool pixels : {false, true}) {
      if (pixels && (ranks == 1 || p.layout != Layout::nhwc)) continue;
      for (const bool image : {true, false}) append({device.lanes, ranks, pixels, image, true});
    }
  }
  return plans;
}

}  // namespace

const MethodOf<ExciteProblem> method = {"squeeze_excite",
                                        "squeeze-and-excitation in one kernel, by the blocks of a cluster",
                                        supports, candidates};

}  // namespace convx::squeeze_excite
