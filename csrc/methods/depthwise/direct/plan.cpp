#include <algorithm>
#include <string>
#include <utility>

#include "methods/depthwise/direct/geometry.h"
#include "methods/depthwise/family.h"
#include "problem/divide.h"

namespace convx::depthwise {
namespace {

using direct::AxisGeometry;
using direct::tiles_of;

constexpr int64_t kLargestSize = int64_t{1} << 29;  // sums of three such stay within 32 bits
constexpr int64_t kChunk = 4;
constexpr int64_t kFilterBytes = 16384;  // shared memory for the filter's window

int64_t accumulator_size(DType dtype) {
  return dtype == DType::float64 ? 8 : 4;
}
int64_t multiprocessors(const DeviceTraits& device) {
  return std::max(device.multiprocessors, 1);
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return Support::no("runs on GPUs; this device is a CPU");
  if (!problem.is_depthwise()) {
    return Support::no("groups (" + std::to_string(problem.groups) + ") must equal in_channels (" +
                       std::to_string(problem.in_channels) + ")");
  }
  if (problem.out_channels >= kLargestSize) return Support::no("out_channels must be below 2^29");
  for (const AxisGeometry& axis : {direct::row_axis(problem), direct::column_axis(problem)}) {
    // In double: their sum and product may overflow 64 bits.
    const double last =
        static_cast<double>(std::max(axis.in_size, axis.out_size)) + static_cast<double>(axis.padding);
    const double reach = static_cast<double>(axis.stride) * static_cast<double>(axis.dilation) *
                         static_cast<double>(axis.filter + 8);
    if (std::max(last, reach) >= static_cast<double>(kLargestSize)) {
      return Support::no("heights, widths, paddings and stride * dilation * filter must be below 2^29");
    }
  }
  return Support::yes();
}

double predict(const ConvProblem& problem, const DeviceTraits& device, double memory_efficiency,
               double arithmetic_efficiency) {
  const double memory = problem.bytes() / (device.bandwidth_GBps * 1e3) / memory_efficiency;
  const double peak = device.fp32_TFLOPs * (problem.dtype == DType::float64 ? 0.5 : 1.0);
  const double arithmetic = problem.flops() / (peak * 1e6) / arithmetic_efficiency;
  return std::max(memory, arithmetic) + 2;
}

struct Tile {
  int64_t rows, columns, vector;
  double efficiency;  // of memory, when there is work for the whole device
};

// The block's threads over a tile grid of `tiles` a plane: as few idle ones as possible.
void append_correlation(const ConvProblem& problem, const DeviceTraits& device, const Tile& tile,
                        std::vector<Plan>& plans) {
  const bool gradient = problem.operation == Operation::input_grad;
  const AxisGeometry row = direct::row_axis(problem), column = direct::column_axis(problem);
  const int64_t channels = gradient ? problem.in_channels : problem.out_channels;
  const int64_t residues = gradient ? row.residues() * column.residues() : 1;
  const int64_t tiles = tiles_of(row.lattice(gradient), row.spacing, tile.rows) *
                        tiles_of(column.lattice(gradient), column.spacing, tile.columns);
  const int64_t work = problem.batch * channels * residues * tiles;
  if (work == 0) return;
  const bool small = work < multiprocessors(device) * 1024;
  const int64_t threads = small ? 64 : 256;

  int64_t block_channels, block_tiles;
  if (problem.layout == Layout::nhwc) {
    block_channels = divide_up(channels, divide_up(channels, 64));
    block_tiles = std::min(tiles, std::max<int64_t>(1, threads / block_channels));
  } else {
    block_tiles = divide_up(tiles, divide_up(tiles, threads));
    block_channels = std::min(channels, std::max<int64_t>(1, threads / block_tiles));
  }
  int64_t block_images = 1;
  if (block_tiles == tiles && block_channels == channels) {
    block_images = std::min(problem.batch, std::max<int64_t>(1, threads / (tiles * channels)));
  }
  const int64_t used = divide_up(block_tiles * block_channels * block_images, device.lanes) * device.lanes;

  // Three more taps for the alignment of wide loads.
  const int64_t chunk_bytes = block_channels * kChunk * accumulator_size(problem.dtype);
  const int64_t chunks = std::min(divide_up(column.taps_of_phase() + (tile.vector > 1 ? 3 : 0), kChunk),
                                  kFilterBytes / chunk_bytes);
  const int64_t window_rows =
      std::clamp<int64_t>(kFilterBytes / (chunk_bytes * chunks), 1, row.taps_of_phase());

  Plan plan;
  plan.candidate = direct_family.name;
  plan.kernel = kDirect;
  plan.tiling = {{"lanes", device.lanes},      {"rows", tile.rows},      {"columns", tile.columns},
                 {"vector", tile.vector},      {"threads", used},        {"tiles", block_tiles},
                 {"channels", block_channels}, {"images", block_images}, {"window_rows", window_rows},
                 {"window_chunks", chunks}};
  // Few threads leave latency uncovered, and a tile that hangs over the edge does idle work.
  const double covered =
      std::min(1.0, static_cast<double>(work) / (static_cast<double>(multiprocessors(device)) * 512));
  const double results = static_cast<double>(
      problem.operation == Operation::input_grad ? problem.input_elements() : problem.output_elements());
  const double filled = std::min(1.0, results / (static_cast<double>(work) * tile.rows * tile.columns));
  const double efficiency = tile.efficiency * std::max(0.02, covered) * (0.5 + 0.5 * filled);
  plan.predicted_us = predict(problem, device, efficiency, efficiency);
  plans.push_back(std::move(plan));
}

void append_correlations(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const bool gradient = problem.operation == Operation::input_grad;
  const bool channels_last = problem.layout == Layout::nhwc;
  const AxisGeometry column = direct::column_axis(problem);
  const bool unit_step = column.spacing == 1 && (gradient || column.stride == 1);
  const int64_t source_width = gradient ? problem.out_width : problem.in_width;
  if (!channels_last && unit_step && source_width % 4 == 0) {
    append_correlation(problem, device, {4, 4, 4, 0.45}, plans);
    append_correlation(problem, device, {1, 4, 4, 0.28}, plans);
  }
  append_correlation(problem, device, {4, 4, 1, 0.35}, plans);
  append_correlation(problem, device, {1, 4, 1, 0.25}, plans);
  // Strided columns of one thread would spread a warp's load over many cache lines.
  append_correlation(problem, device, {4, 1, 1, unit_step || channels_last ? 0.3 : 0.4}, plans);
  append_correlation(problem, device, {1, 1, 1, 0.2}, plans);
}

void append_weight_grad(const ConvProblem& problem, const DeviceTraits& device, int64_t tap_rows,
                        int64_t tap_columns, std::vector<Plan>& plans) {
  const AxisGeometry row = direct::row_axis(problem);
  const bool channels_last = problem.layout == Layout::nhwc;
  const int64_t tap_blocks =
      row.phases() * divide_up(row.taps_of_phase(), tap_rows) * divide_up(problem.filter_width, tap_columns);
  const int64_t channel_blocks =
      channels_last ? divide_up(problem.out_channels, device.lanes) : problem.out_channels;
  const int64_t units = problem.batch * tiles_of(row.lattice(false), row.spacing, 4);
  const int64_t positions = units * problem.out_width;
  if (positions == 0) return;
  const int64_t in_flight = channels_last ? 128 / device.lanes : 128;  // positions of a block at a time
  const int64_t wanted = divide_up(multiprocessors(device) * 16, tap_blocks * channel_blocks);
  int64_t slices = std::clamp<int64_t>(std::min(wanted, positions / (in_flight * 2)), 1, units);
  // Positions of one slice are counted in 31 bits.
  slices = std::max(slices, divide_up(positions, int64_t{1} << 30));

  Plan plan;
  plan.candidate = direct_family.name;
  plan.kernel = kDirect;
  plan.tiling = {
      {"lanes", device.lanes}, {"tap_rows", tap_rows}, {"tap_columns", tap_columns}, {"slices", slices}};
  if (slices > 1) {
    plan.workspace_bytes = slices * problem.weight_elements() * accumulator_size(problem.dtype);
  }
  // Every block of taps reads both tensors again, mostly from cache, and computes all its taps.
  const double computed = static_cast<double>(tap_blocks * tap_rows * tap_columns) /
                          static_cast<double>(problem.filter_height * problem.filter_width);
  const double passes = 1 + 0.3 * static_cast<double>(tap_blocks - 1);
  plan.predicted_us = predict(problem, device, 0.4 / passes, 0.35 / computed) + (slices > 1 ? 2 : 0);
  plans.push_back(std::move(plan));
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  if (problem.operation != Operation::weight_grad) {
    append_correlations(problem, device, plans);
    return;
  }
  append_weight_grad(problem, device, 3, 3, plans);
  append_weight_grad(problem, device, 5, 5, plans);
  append_weight_grad(problem, device, 4, 8, plans);
}

}  // namespace

const Family direct_family = {"direct", supports, append};

}  // namespace convx::depthwise
