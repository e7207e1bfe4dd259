// Into how many slices the work of a weight gradient is cut: each slice is summed by blocks of its own, and
// with more than one a second kernel adds the slices. Host only.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "problem/device.h"
#include "problem/divide.h"
#include "problem/problem.h"

namespace convx::depthwise {

constexpr double kLaunchUs = 2.0;     // one kernel's own cost
constexpr double kSumSlicesUs = 1.0;  // the second kernel, overlapping the end of the first

struct SliceWork {
  int64_t blocks;     // blocks that one slice takes
  int64_t rounds;     // steps that a block would walk through with one slice
  int64_t resident;   // blocks the device runs at once
  double most_waves;  // of resident blocks: a block that fills a pipeline first should live long
  double round_us;    // latency of a step
  double stream_us;   // time of the traffic and arithmetic at the kernel's best efficiency
  double partial_us;  // time to write and read one slice's sums
};

struct Slices {
  int64_t count;
  double predicted_us;
};

inline double sliced_us(const SliceWork& work, int64_t slices) {
  const double waves = static_cast<double>(work.blocks * slices) / work.resident;
  const double rounds = std::ceil(static_cast<double>(work.rounds) / slices);
  // A device two thirds full already streams at full speed; blocks of the last of several waves leave it
  // partly idle.
  const double tail = work.most_waves > 1 ? 0.2 / std::max(waves, 1.0) : 0.03;
  const double streaming = work.stream_us * (1 + tail) / std::min(1.0, 1.5 * waves);
  const double walking = rounds * work.round_us * std::ceil(waves);
  // The second kernel has 128 loads of an output's sums in flight.
  const double summing = slices > 1 ? kSumSlicesUs + work.partial_us * slices + 0.6 * (slices / 128) : 0;
  return kLaunchUs + std::max(streaming, walking) + summing;
}

inline Slices choose_slices(const SliceWork& work) {
  Slices best{1, sliced_us(work, 1)};
  for (double waves = 0.125; waves <= work.most_waves; waves *= 2) {
    int64_t slices = static_cast<int64_t>(work.resident * waves / work.blocks);
    slices = std::max<int64_t>(1, std::min(slices, work.rounds));
    const double us = sliced_us(work, slices);
    if (us < best.predicted_us) best = {slices, us};
  }
  return best;
}

inline double stream_us(const ConvProblem& problem, const DeviceTraits& device, double efficiency) {
  const double bytes_us = problem.bytes() / (device.bandwidth_GBps * 1e3);
  const double flops_us = problem.flops() / (device.fp32_TFLOPs * 1e6);
  return std::max(bytes_us, flops_us) / efficiency;
}

// Why none of the fast weight-gradient kernels can run the problem; empty where they may.
inline std::string fast_weight_grad_refusal(const ConvProblem& problem, const DeviceTraits& device,
                                            Layout layout, int64_t largest_filter) {
  if (device.backend == Backend::cpu) return "runs on GPUs";
  if (problem.operation != Operation::weight_grad) return "computes the weight gradient alone";
  if (problem.layout != layout) return std::string("needs the layout ") + to_string(layout);
  if (problem.dtype == DType::float64) return "has no float64";
  if (!problem.is_depthwise() || problem.out_channels_per_group() != 1) {
    return "needs groups = in_channels = out_channels";
  }
  const int64_t filter = problem.filter_height;
  if (filter != problem.filter_width || filter < 3 || filter > largest_filter || filter % 2 == 0) {
    return "needs a square filter, 3x3 to " + std::to_string(largest_filter) + "x" +
           std::to_string(largest_filter) + ", of odd size";
  }
  if (problem.stride_h != problem.stride_w || problem.stride_h > 2) return "needs stride 1 or 2 both ways";
  if (problem.dilation_h != 1 || problem.dilation_w != 1) return "needs dilation 1";
  return {};
}

}  // namespace convx::depthwise
