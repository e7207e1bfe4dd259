#include <algorithm>
#include <string>
#include <utility>

#include "methods/depthwise/channels/tiles.h"
#include "methods/depthwise/family.h"

namespace convx::depthwise {
namespace {

using channels::Tile;

constexpr int64_t kThreads = 128;
constexpr int64_t kOffsets = int64_t{1} << 31;  // offsets within a tile are 32 bits

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (device.backend == Backend::cpu) return Support::no("runs on GPUs; this device is a CPU");
  if (problem.operation == Operation::weight_grad) return Support::no("forward and input_grad only");
  if (problem.layout != Layout::nhwc) return Support::no("layout must be channels_last");
  if (problem.dtype == DType::float64) return Support::no("dtype must be float32, float16 or bfloat16");
  if (!problem.is_depthwise() || problem.out_channels != problem.in_channels) {
    return Support::no("groups, in_channels and out_channels must be equal");
  }
  const int64_t filter = problem.filter_height, stride = problem.stride_h;
  if (filter != problem.filter_width || (filter != 3 && filter != 5 && filter != 7)) {
    return Support::no("filter must be 3x3, 5x5 or 7x7");
  }
  if (stride != problem.stride_w || stride > 2) return Support::no("stride must be (1, 1) or (2, 2)");
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return Support::no("dilation must be 1");
  if (std::max({problem.padding_top, problem.padding_bottom, problem.padding_left, problem.padding_right}) >=
      filter) {
    return Support::no("padding must be smaller than the filter");
  }
  // A tile spans at most 21 rows; unit and thread numbers are 32 bits.
  const int64_t height = std::max(problem.in_height, problem.out_height);
  const int64_t width = std::max(problem.in_width, problem.out_width);
  if (problem.in_channels * (width + 32) * 32 >= kOffsets || (height + 32) * problem.batch >= kOffsets ||
      height >= kOffsets / 64) {
    return Support::no("channels * width must be below 2^26, and batch * height below 2^31");
  }
  return Support::yes();
}

// Of the memory bandwidth, on large problems (H200, bfloat16, stride 1: measured).
double efficiency_of(const ConvProblem& problem, const Tile& tile, channels::TileSize size) {
  double efficiency = problem.filter_height == 3 ? 0.76 : problem.filter_height == 5 ? 0.42 : 0.25;
  if (problem.dtype == DType::float32 && problem.filter_height > 3) efficiency *= 1.4;
  if (problem.stride_h == 2) efficiency *= 0.85;
  if (size == channels::kSmall) efficiency *= 0.7;
  if (size == channels::kOther) efficiency *= 0.95;
  // Results of a tile that hang over the edge are computed for nothing.
  const bool gradient = problem.operation == Operation::input_grad;
  const int64_t width = gradient ? problem.in_width : problem.out_width;
  const int64_t height = gradient ? problem.in_height : problem.out_height;
  const double filled = static_cast<double>(width * height) /
                        static_cast<double>(divide_up(width, tile.columns) * tile.columns *
                                            divide_up(height, tile.rows) * tile.rows);
  return efficiency * (0.5 + 0.5 * filled);
}

void append(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  if (!supports(problem, device).ok) return;
  const bool gradient = problem.operation == Operation::input_grad;
  const int64_t stride = problem.stride_h, filter = problem.filter_height;
  const bool transposed = gradient && stride > 1;
  const bool half = problem.dtype != DType::float32;
  const bool wide_channels = half && problem.in_channels % 2 == 0;
  const int64_t lane_channels = wide_channels ? 2 : 1;
  const bool long_activation =
      problem.operation == Operation::forward && problem.activation != Activation::none &&
      problem.activation != Activation::relu && problem.activation != Activation::relu6;
  for (const channels::TileSize size : {channels::kLarge, channels::kSmall, channels::kOther}) {
    const Tile tile = channels::tile_of(static_cast<int>(filter), static_cast<int>(stride), transposed,
                                        wide_channels, size);
    // One channel a lane of 16 bits is for odd channel counts: the small tile will do.
    if (tile.columns == 0 || (long_activation && size != channels::kSmall)) continue;
    if (half && !wide_channels && size != channels::kSmall) continue;
    const int64_t height =
        gradient ? problem.in_height + (transposed ? problem.padding_top % stride : 0) : problem.out_height;
    const int64_t width =
        gradient ? problem.in_width + (transposed ? problem.padding_left % stride : 0) : problem.out_width;
    const int64_t column_tiles = divide_up(width, tile.columns), row_tiles = divide_up(height, tile.rows);
    const int64_t units = problem.batch * row_tiles;
    if (column_tiles * units == 0) continue;
    const int64_t blocks = divide_up(problem.in_channels / lane_channels * column_tiles, kThreads);
    // Four waves of blocks: enough to even out their ends, few enough to load filters seldom.
    const int64_t resident_blocks = std::max(1, device.multiprocessors) * tile.blocks;
    const int64_t slices = std::clamp<int64_t>(divide_up(resident_blocks * 4, blocks), 1, units);

    Plan plan;
    plan.candidate = channels_family.name;
    plan.kernel = kChannels;
    plan.tiling = {{"lanes", device.lanes},   {"tile", size},      {"channels", lane_channels},
                   {"columns", tile.columns}, {"rows", tile.rows}, {"slices", slices}};
    const double memory =
        problem.bytes() / (device.bandwidth_GBps * 1e3) / efficiency_of(problem, tile, size);
    // A thread's chain of dependent row loads, where too few threads cover each other's.
    const double waves = static_cast<double>(divide_up(blocks * slices, resident_blocks));
    const double latency = waves * static_cast<double>(divide_up(units, slices)) * 0.2 *
                           static_cast<double>(tile.rows * stride + filter);
    plan.predicted_us = std::max(memory, latency) + 2;
    plans.push_back(std::move(plan));
  }
}

}  // namespace

const Family channels_family = {"channels", supports, append};

}  // namespace convx::depthwise
