// Planning of strip_weight: the width of a lane's strip and the slices of the work.
#include "../family.h"
#include "../weight_slices.h"
#include "geometry.h"

namespace convx::depthwise {
namespace {

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  const std::string refusal = fast_weight_grad_refusal(problem, device, Layout::nchw, 7);
  if (!refusal.empty()) return Support::no(refusal);
  constexpr int64_t kLimit = int64_t{1} << 30;  // 32-bit offsets in a plane, 32-bit counts of units
  const auto fits = [](int64_t height, int64_t width) { return height < kLimit / width - 2 * width; };
  if (!fits(problem.in_height + 16, problem.in_width + 16) ||
      !fits(problem.out_height + 16, problem.out_width + 16)) {
    return Support::no("needs planes of fewer than 2^30 elements");
  }
  if (strip_weight_geometry(problem, 4, device.lanes).units(problem) >= kLimit) {
    return Support::no("needs fewer than 2^30 strips of rows");
  }
  return Support::yes();
}

// Fraction of the floor reached on an H200 (findings/depthwise.md): bytes bound in float32 and 3x3, bound by
// conversions and multiply-adds in 16 bits from 5x5 on. Loads by single elements cost about half.
double efficiency(const ConvProblem& problem, int64_t columns, bool aligned) {
  const bool half = element_size(problem.dtype) == 2;
  double value = problem.filter_height == 3   ? (half ? 0.92 : 1.0)
                 : problem.filter_height == 5 ? (half ? 0.55 : 0.93)
                                              : 0.45;
  if (problem.filter_height == 7 && half) value = 0.4;
  if (columns * element_size(problem.dtype) < 8) value *= 0.7;
  if (columns * element_size(problem.dtype) < 16) value *= half && problem.filter_height > 3 ? 0.95 : 0.85;
  return aligned ? value : 0.5 * value;
}

void append_tiling(const ConvProblem& problem, const DeviceTraits& device, int64_t columns, bool aligned,
                   std::vector<Plan>& plans) {
  const StripWeightGeometry geometry = strip_weight_geometry(problem, columns, device.lanes);
  const int64_t chunks = divide_up(geometry.units(problem), geometry.segments);  // one per warp and round
  const double stream = stream_us(problem, device, efficiency(problem, columns, aligned));
  const double slice_us = problem.out_channels * problem.filter_height * problem.filter_width * 8.0 /
                          (device.bandwidth_GBps * 1e3);
  // Launch bounds share out the registers of an NVIDIA multiprocessor.
  constexpr int64_t kRegisters = 65536;
  const int64_t registers =
      kRegisters / strip_weight_threads(device.lanes, problem.filter_height, columns, aligned);
  Plan best;
  for (const int64_t threads :
       {int64_t{128}, strip_weight_threads(device.lanes, problem.filter_height, columns, aligned)}) {
    const int64_t warps = std::min(threads / device.lanes, chunks);
    const int64_t resident =
        std::max<int64_t>(1, device.multiprocessors) *
        std::max<int64_t>(1, device.registers_per_multiprocessor / (registers * warps * device.lanes));
    const Slices slices =
        choose_slices({problem.out_channels, divide_up(chunks, warps), resident, 8, aligned ? 1.0 : 4.0,
                       warps * device.lanes > 128 ? 1.05 * stream : stream, slice_us});
    if (!best.tiling.empty() && slices.predicted_us >= best.predicted_us) continue;
    best.candidate = "strip_weight";
    best.kernel = kStripWeight;
    best.tiling = {{"lanes", device.lanes},
                   {"columns", columns},
                   {"aligned", aligned ? 1 : 0},
                   {"threads", warps * device.lanes},
                   {"slices", slices.count}};
    best.workspace_bytes = slices.count == 1 ? 0 : slices.count * problem.weight_elements() * 4;
    best.predicted_us = slices.predicted_us;
  }
  plans.push_back(best);
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const int64_t widest = 16 / element_size(problem.dtype);
  // Pairs of 16-bit columns are for rows such as 14 at stride 2; at stride 1 plane_weight has those.
  const int64_t narrowest = problem.stride_w == 2 ? 2 : widest / 2;
  for (int64_t columns = widest; columns >= narrowest; columns /= 2) {
    // The 7x7 sums leave registers for strips of four columns, and their halo spans three.
    if (problem.filter_height == 7 && columns != 4) continue;
    if (strip_weight_aligned(problem, columns)) append_tiling(problem, device, columns, true, plans);
  }
  append_tiling(problem, device, 4, false, plans);
}

}  // namespace

const Family strip_weight_family = {"strip_weight", supports, append};

}  // namespace convx::depthwise
