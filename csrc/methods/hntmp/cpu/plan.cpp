// How the CPU kernels share out a problem, and what that should cost.
#include <algorithm>

#include "methods/filters/crsk.h"
#include "methods/hntmp/candidates.h"
#include "methods/hntmp/cpu/job.h"

namespace convx::hntmp {
namespace {

// Filters of the source channels that are added up at a time, in the first-level cache beside the input's
// rows.
constexpr int64_t kFilterBytes = 16 * 1024;
// Products that are summed apart before they join a result's total, for the sake of rounding; without fused
// multiply-adds each product is rounded too.
constexpr int64_t products_apart(CpuIsa isa) {
  return isa == CpuIsa::baseline ? 48 : 128;
}
// Staged input and sums of a task, in a second-level cache.
constexpr int64_t kTaskBytes = 640 * 1024;

struct Share {
  int64_t rows, blocks;
  double us;
};

// Microseconds of the busiest thread where a task is that many rows and blocks of result channels. Products
// reach 1.33 times the cautious rate of the device's traits (cuConv's and ResNet's layers at batch 1 and 8,
// two AVX-512 cores).
double share_us(const Sweep& s, int64_t rows, int64_t blocks, int64_t all_blocks, int64_t block_channels,
                const ConvProblem& problem, const DeviceTraits& device) {
  const int64_t threads = std::max(device.threads, 1);
  const int64_t tasks = s.batch * s.groups * divide_up(s.result_height, rows) * divide_up(all_blocks, blocks);
  const double rounds = static_cast<double>(divide_up(tasks, threads));
  const int64_t window_rows = (rows - 1) * s.stride_h + (s.filter_height - 1) * s.dilation_h + 1;
  const double staged = static_cast<double>(s.source_channels * window_rows) *
                        static_cast<double>(s.source_width + s.filter_width);
  const double products = static_cast<double>(rows * s.result_width * blocks * block_channels) *
                          static_cast<double>(s.source_channels * s.taps());
  const double wide = problem.dtype == DType::float64 ? 2 : 1;
  const double sums = static_cast<double>(rows * s.result_width * block_channels);
  const bool spills = (staged + sums) * 4 * wide > static_cast<double>(kTaskBytes);
  const double rate = device.fp32_TFLOPs * 1e6 / static_cast<double>(threads) * 1.33 / wide;
  // A staged or written element costs about a nanosecond, one of channels_last two, those of 16 bits more.
  const double element =
      (problem.layout == Layout::nhwc ? 5e-4 : 2.5e-4) * wide * (element_size(problem.dtype) == 2 ? 2 : 1);
  const double ends = staged + static_cast<double>(rows * s.result_width * blocks * block_channels);
  return rounds * (2 * products / rate * (spills ? 1.1 : 1) + ends * element);
}

Share best_share(const Sweep& s, int64_t all_blocks, int64_t block_channels, const ConvProblem& problem,
                 const DeviceTraits& device) {
  Share best{s.result_height, all_blocks, -1};
  for (int64_t parts = 1; parts <= std::min<int64_t>(s.result_height, 128); ++parts) {
    const int64_t rows = divide_up(s.result_height, parts);
    for (const int64_t block_parts :
         {int64_t{1}, std::min<int64_t>(std::max(device.threads, 1), all_blocks)}) {
      const int64_t blocks = divide_up(all_blocks, block_parts);
      const double us = share_us(s, rows, blocks, all_blocks, block_channels, problem, device);
      if (best.us < 0 || us < best.us) best = {rows, blocks, us};
    }
  }
  return best;
}

}  // namespace

Support cpu_supports(const ConvProblem&, const DeviceTraits&) {
  return Support::yes();
}

std::vector<Plan> cpu_candidates(const ConvProblem& problem, const DeviceTraits& device) {
  const Sweep s = cpu_sweep_of(problem, device.isa);
  const int64_t lanes = vector_lanes(device.isa, problem.dtype);
  const int64_t block_channels = kBlockVectors * lanes, blocks = divide_up(s.result_channels, block_channels);
  const Share share = best_share(s, blocks, block_channels, problem, device);
  const int64_t channel_bytes = s.taps() * block_channels * element_size(problem.dtype);
  const int64_t channels =
      std::max<int64_t>(std::min(kFilterBytes / channel_bytes, products_apart(device.isa) / s.taps()), 1);
  Plan plan;
  plan.candidate = "cpu";
  plan.tiling = {{"vector_lanes", lanes},
                 {"columns", most_pixels(device.isa)},
                 {"block_channels", block_channels},
                 {"rows", share.rows},
                 {"blocks", share.blocks},
                 {"source_channels", channels}};
  plan.packing = filters::crsk_name(problem, block_channels);
  plan.packed_weight_bytes = filters::crsk_bytes(problem, block_channels);
  plan.predicted_us = std::max(share.us, problem.bytes() / (device.bandwidth_GBps * 1e3)) + 5;
  if (problem.operation == Operation::input_grad) {
    plan.predicted_us += filters::crsk_cpu_us(problem, device);
  }
  return {plan};
}

}  // namespace convx::hntmp
