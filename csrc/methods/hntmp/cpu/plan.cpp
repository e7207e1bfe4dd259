// How the CPU kernels share out a problem, and what that should cost.
#include <algorithm>
#include <cmath>
#include <string>

#include "methods/hntmp/candidates.h"
#include "methods/hntmp/cpu/pixels_geometry.h"
#include "methods/hntmp/cpu/thread_memory.h"
#include "methods/packing/crsk.h"
#include "problem/memory.h"

namespace convx::hntmp {
namespace {

// Filters of the source channels that are added up at a time, in the first-level cache beside the input's
// rows.
constexpr int64_t kFilterBytes = 16 * 1024;
// Most products that are summed apart before they join a result's total, for the sake of rounding; without
// fused multiply-adds each product is rounded too.
constexpr int64_t products_apart(CpuIsa isa) {
  return isa == CpuIsa::baseline ? 48 : 128;
}
// Staged input and sums of a task, in a second-level cache.
constexpr int64_t kTaskBytes = 640 * 1024;

struct Share {
  int64_t rows, blocks;
  int64_t threads;  // as many as there is memory for
  double us;
};

// What does not depend on the share of a task.
struct Cpu {
  Sweep sweep;
  int64_t lanes, block_channels, blocks;
  int64_t source_channels;  // added up at a time
};

Cpu describe_cpu(const ConvProblem& problem, const DeviceTraits& device) {
  Cpu c{};
  c.sweep = cpu_sweep_of(problem, device.isa);
  c.lanes = vector_lanes(device.isa, problem.dtype);
  c.block_channels = kBlockVectors * c.lanes;
  c.blocks = divide_up(c.sweep.result_channels, c.block_channels);
  const int64_t channel_bytes = c.sweep.taps() * c.block_channels * element_size(problem.dtype);
  c.source_channels = std::max<int64_t>(
      std::min(kFilterBytes / channel_bytes, products_apart(device.isa) / c.sweep.taps()), 1);
  return c;
}

double bytes_of_rows(const Cpu& c, int64_t rows, DType dtype) {
  return memory_of<double>(c.sweep, rows, c.source_channels, c.lanes, dtype).bytes;
}

// Microseconds of the busiest thread where a task is that many rows and blocks of result channels. Products
// reach 1.33 times the cautious rate of the device's traits (cuConv's and ResNet's layers at batch 1 and 8,
// two AVX-512 cores).
double share_us(const Cpu& c, int64_t rows, int64_t blocks, int64_t threads, const ConvProblem& problem,
                const DeviceTraits& device) {
  const Sweep& s = c.sweep;
  const int64_t tasks = s.batch * s.groups * divide_up(s.result_height, rows) * divide_up(c.blocks, blocks);
  const double rounds = static_cast<double>(divide_up(tasks, threads));
  const int64_t window_rows = (rows - 1) * s.stride_h + (s.filter_height - 1) * s.dilation_h + 1;
  const double staged = static_cast<double>(s.source_channels * window_rows) *
                        static_cast<double>(s.source_width + s.filter_width);
  const double products = static_cast<double>(rows * s.result_width * blocks * c.block_channels) *
                          static_cast<double>(s.source_channels * s.taps());
  const double wide = problem.dtype == DType::float64 ? 2 : 1;
  const double sums = static_cast<double>(rows * s.result_width * c.block_channels);
  const bool spills = (staged + sums) * 4 * wide > static_cast<double>(kTaskBytes);
  const double rate =
      device.fp32_TFLOPs * 1e6 / static_cast<double>(std::max(device.threads, 1)) * 1.33 / wide;
  // A staged or written element costs about a nanosecond, one of channels_last two, those of 16 bits more.
  const double element =
      (problem.layout == Layout::nhwc ? 5e-4 : 2.5e-4) * wide * (element_size(problem.dtype) == 2 ? 2 : 1);
  const double ends = staged + static_cast<double>(rows * s.result_width * blocks * c.block_channels);
  return rounds * (2 * products / rate * (spills ? 1.1 : 1) + ends * element);
}

// The rows and blocks of a task that are expected to be fastest, of those that there is memory for; some
// threads stay idle where there is not enough for all.
Share best_share(const Cpu& c, const ConvProblem& problem, const DeviceTraits& device) {
  const int64_t all_threads = std::max(device.threads, 1), height = c.sweep.result_height;
  Share best{0, 0, 0, -1};
  // All parts of images up to 128 rows; of larger ones every doubling beyond, down to a row.
  for (int64_t parts = 1; parts < 2 * height; parts += parts < 128 ? 1 : parts) {
    const int64_t rows = divide_up(height, std::min(parts, height));
    const double bytes = bytes_of_rows(c, rows, problem.dtype);
    const int64_t threads =
        static_cast<int64_t>(std::min(static_cast<double>(workspace_limit()) / bytes, 1.0 * all_threads));
    if (threads == 0) continue;
    for (const int64_t block_parts : {int64_t{1}, std::min<int64_t>(all_threads, c.blocks)}) {
      const int64_t blocks = divide_up(c.blocks, block_parts);
      const double us = share_us(c, rows, blocks, threads, problem, device);
      if (best.us < 0 || us < best.us) best = {rows, blocks, threads, us};
    }
  }
  return best;
}

// Rows that a strip copies, in a second-level cache beside a panel of filters.
constexpr int64_t kStripBytes = 256 * 1024;
// What a core has to wait for of the filters that each strip reads and of the rows that it copies: parts
// share out the filters, bands the rows (ResNet's layers, one image, two AVX-512 cores).
constexpr double kStreamedBytesPerUs = 30e3;

bool are_pixels(const ConvProblem& p) {
  return p.operation == Operation::forward && p.dtype == DType::float32 && p.layout == Layout::nhwc &&
         p.groups == 1 && p.dilation_h == 1 && p.dilation_w == 1 && p.padding_top >= 0 && p.padding_left >= 0;
}

void append_pixels(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Sweep s = sweep_of(problem);
  const int64_t threads = std::max(device.threads, 1), lanes = vector_lanes(device.isa, problem.dtype);
  const int64_t shares = divide_up(threads, s.batch);  // of an image
  const int64_t panels = divide_up(divide_up(s.result_channels, lanes), panels::kPanel);
  for (const bool are_bands : {true, false}) {
    if (!are_bands && shares == 1) break;
    PixelsTiling t{lanes, 1, 1, 1, 1};
    (are_bands ? t.bands : t.parts) = std::min(shares, are_bands ? s.result_height : panels);
    t.workers = std::min(threads, s.batch * t.bands * t.parts);
    const int64_t row_bytes = pixels_geometry_of(s, t).row * s.stride_h * 4;
    t.strip_rows = std::clamp<int64_t>(kStripBytes / row_bytes, 1, divide_up(s.result_height, t.bands));
    const PixelsGeometry g = pixels_geometry_of(s, t);
    if (t.workers * g.worker * 4 > workspace_limit()) continue;
    Plan plan;
    plan.candidate = "pixels";
    plan.kernel = kCpuPixels;
    plan.tiling = {{"vector_lanes", t.lanes},
                   {"bands", t.bands},
                   {"parts", t.parts},
                   {"strip_rows", t.strip_rows},
                   {"workers", t.workers}};
    plan.workspace_bytes = t.workers * g.worker * 4;
    plan.packing = "panels of " + std::to_string(t.lanes) + ", taps outside";
    plan.packed_weight_bytes = g.packed * 4;
    const int64_t tasks = s.batch * t.bands * t.parts, of_worker = divide_up(tasks, t.workers);
    const double rate = 1.33 * device.fp32_TFLOPs * 1e6 / static_cast<double>(threads);
    const int64_t strips = divide_up(divide_up(s.result_height, t.bands), t.strip_rows);
    const double streamed = 4.0 * static_cast<double>(strips * (g.packed / t.parts + g.biases_at));
    plan.predicted_us =
        5 + static_cast<double>(of_worker) *
                (problem.flops() / static_cast<double>(tasks) / rate + streamed / kStreamedBytesPerUs);
    plans.push_back(std::move(plan));
  }
}

}  // namespace

Support cpu_supports(const ConvProblem& problem, const DeviceTraits& device) {
  const double bytes = bytes_of_rows(describe_cpu(problem, device), 1, problem.dtype);
  if (bytes <= static_cast<double>(workspace_limit())) return Support::yes();
  return Support::no("a thread needs " + megabytes(bytes) + " MB for one row of results, more than the " +
                     megabytes(static_cast<double>(workspace_limit())) + " MB of CONVX_WORKSPACE_LIMIT_MB");
}

std::vector<Plan> cpu_candidates(const ConvProblem& problem, const DeviceTraits& device) {
  const Cpu c = describe_cpu(problem, device);
  const Share share = best_share(c, problem, device);
  Plan plan;
  plan.candidate = "cpu";
  plan.tiling = {{"vector_lanes", c.lanes},
                 {"columns", most_pixels(device.isa)},
                 {"block_channels", c.block_channels},
                 {"rows", share.rows},
                 {"blocks", share.blocks},
                 {"source_channels", c.source_channels},
                 {"threads", share.threads}};
  plan.workspace_bytes =
      share.threads *
      memory_of<int64_t>(c.sweep, share.rows, c.source_channels, c.lanes, problem.dtype).bytes;
  plan.packing = packing::crsk_name(problem, c.block_channels);
  plan.packed_weight_bytes = packing::crsk_bytes(problem, c.block_channels);
  plan.predicted_us = std::max(share.us, problem.bytes() / (device.bandwidth_GBps * 1e3)) + 5;
  if (problem.operation == Operation::input_grad) {
    plan.predicted_us += packing::crsk_cpu_us(problem, device);
  }
  std::vector<Plan> plans = {plan};
  if (are_pixels(problem)) append_pixels(problem, device, plans);
  return plans;
}

}  // namespace convx::hntmp
