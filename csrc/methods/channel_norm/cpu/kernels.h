// Layer norm of channels on CPUs: vector lanes along channels. Included last by each cpu_*.cpp.
#pragma once
#include "platform/cpu/rows.h"
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace norms {

using channel_norm::Job;

struct Kernel {
  static constexpr int L = kLanes<float>;
  using V = Simd<float, L>;

  const Job& job;
  const NormProblem& p = job.problem;

  struct Sums {
    float first, second;
  };

  // Of the distances from a center, and of their squares; several apart: one long sum's rounding error grows
  // with its length.
  CONVX_INLINE Sums sums(const float* pixel, float center) const {
    V first[4] = {}, second[4] = {};
    const auto add = [&](int k, int64_t c) {
      const V value = load<L>(pixel + c) - center;
      first[k] += value, second[k] += value * value;
    };
    int64_t c = 0;
    for (; c + 4 * L <= p.channels; c += 4 * L) {
      CONVX_UNROLLED
      for (int k = 0; k < 4; ++k) add(k, c + k * L);
    }
    for (; c + L <= p.channels; c += L) add(0, c);
    const auto all = [](const V(&of)[4]) { return sum_lanes<float, L>((of[0] + of[1]) + (of[2] + of[3])); };
    Sums found = {all(first), all(second)};
    for (; c < p.channels; ++c) {
      const float value = pixel[c] - center;
      found.first += value, found.second += value * value;
    }
    return found;
  }

  // Around the mean of the values, and once more around what rounding has left of that.
  void normalize(const float* pixel, float* to) const {
    const float per_channel = 1.0f / static_cast<float>(p.channels);
    const float center = sums(pixel, 0.0f).first * per_channel;
    const Sums around = sums(pixel, center);
    const float shift = around.first * per_channel, variance = around.second * per_channel - shift * shift;
    const float scale = 1.0f / __builtin_sqrtf(variance + p.eps);
    int64_t c = 0;
    for (; c + L <= p.channels; c += L) {
      V value = (load<L>(pixel + c) - center - shift) * scale;
      if (p.weight != nullptr) value *= load<L>(p.weight + c);
      if (p.bias != nullptr) value += load<L>(p.bias + c);
      store<L>(to + c, value);
    }
    for (; c < p.channels; ++c) {
      const float value = (pixel[c] - center - shift) * scale * (p.weight == nullptr ? 1.0f : p.weight[c]);
      to[c] = value + (p.bias == nullptr ? 0.0f : p.bias[c]);
    }
  }

  void run(const ThreadPool& pool) const {
    // Less than some ten microseconds of work stays in this thread.
    const bool is_tiny = p.pixels * p.channels < 32768;
    pool.parallel_for(p.pixels, is_tiny ? p.pixels : ceil_divide(p.pixels, pool.threads),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t pixel = begin; pixel < end; ++pixel) {
                          normalize(job.input + pixel * p.channels, job.result + pixel * p.channels);
                        }
                      });
  }
};

}  // namespace norms

void run(const channel_norm::Job& job, const ThreadPool& pool) {
  norms::Kernel{job}.run(pool);
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
