// The CPU candidate: how row products share out a problem, and what that should cost.
#include <algorithm>

#include "methods/cuconv/cpu/job.h"
#include "methods/cuconv/family.h"
#include "methods/packing/crsk.h"
#include "problem/divide.h"
#include "problem/memory.h"

namespace convx::cuconv {
namespace {

// Packed source that is read again for every block of filters should stay in a shared cache.
int64_t packed_bytes() {
  return std::min(int64_t{8} << 20, workspace_limit());
}

}  // namespace

void append_cpu(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  Sweep s = sweep_of(problem);
  const int64_t lanes = vector_lanes(device.isa, problem.dtype), filters = block_filters(device.isa);
  const int64_t strip = strip_vectors(device.isa) * lanes, threads = std::max(device.threads, 1);
  const int64_t accumulator_bytes = problem.dtype == DType::float64 ? 8 : 4;
  const PackedPlane plane = packed_plane(s);
  const int64_t image = s.groups * s.source_channels * plane.elements;
  // A flat source of enough pixels is read as it is.
  const bool packs = !s.is_flat() || s.source_plane() < strip;
  const int64_t fitting = (packed_bytes() / accumulator_bytes - kOverread) / image;
  const int64_t images = std::clamp<int64_t>(fitting, 1, s.batch);
  const int64_t workspace = packs ? (images * image + kOverread) * accumulator_bytes : 0;
  if (workspace > workspace_limit()) return;

  // Ranges of positions so that every thread has some blocks to choose from.
  const int64_t positions = (s.result_height - 1) * plane.pitch + s.result_width;
  const int64_t blocks = divide_up(s.result_channels, filters),
                at_once = (packs ? images : s.batch) * s.groups * blocks;
  const int64_t ranges = std::clamp<int64_t>(divide_up(threads * 4, at_once), 1, divide_up(positions, strip));
  Plan plan;
  plan.candidate = "rows";
  plan.tiling = {{"filters", filters},
                 {"vector_lanes", lanes},
                 {"positions", round_up(divide_up(positions, ranges), strip)},
                 {"images", images}};
  plan.workspace_bytes = workspace;
  plan.packing = packing::crsk_name(problem, filters);
  plan.packed_weight_bytes = packing::crsk_bytes(problem, filters);

  const double wide = problem.dtype == DType::float64 ? 2 : 1;
  const double products =
      static_cast<double>(s.batch * s.groups * blocks * filters * s.source_channels * s.taps()) *
      static_cast<double>(round_up(positions, lanes));
  const double rate = device.fp32_TFLOPs * 1e6 * 1.2 / wide;
  const double packed = packs ? static_cast<double>(s.batch * image) : 0;
  plan.predicted_us =
      std::max(2 * products / rate, problem.bytes() / (device.bandwidth_GBps * 1e3)) +
      (packed * 3e-4 + static_cast<double>(s.results()) * 2e-4) * wide / static_cast<double>(threads) + 8;
  if (problem.operation == Operation::input_grad) {
    plan.predicted_us += packing::crsk_cpu_us(problem, device);
  }
  plans.push_back(std::move(plan));
}

}  // namespace convx::cuconv
