// Means of planes. In channels_last a block has 128 bytes of the channels of an image, a cache line of each
// pixel; in nchw some planes, of which each has neighbouring threads. Threads add up some pixels each, then
// what is of the same channel through shared memory.
#pragma once
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/warp.h"

namespace convx::plane_means {

constexpr int kThreads = 256;
constexpr int kLine = 8;    // vectors of 16 bytes: a block's channels
constexpr int kPlanes = 8;  // of a block in nchw
constexpr int kParts = 4;   // in which a channel's sums are added up

struct Shape {
  uint32_t channels, pixels, planes;  // of all images
  FastDivide lines;                   // of an image's channels
  float per_pixel;
};

// sums: of `Count` channels, of each `Groups` sums; thread c < Count returns channel c's.
template <int Count, int Groups>
CONVX_DEVICE float total_of(const float (*sums)[Count], float (*parts)[Count]) {
  static_assert(Count * kParts <= kThreads && Groups % kParts == 0, "a thread each");
  const int thread = static_cast<int>(threadIdx.x), channel = thread % Count, part = thread / Count;
  block_barrier();
  if (part < kParts) {
    float sum = 0;
    CONVX_UNROLL
    for (int i = 0; i < Groups / kParts; ++i) sum += sums[part * (Groups / kParts) + i][channel];
    parts[part][channel] = sum;
  }
  block_barrier();
  float total = 0;
  if (thread < Count) {
    CONVX_UNROLL
    for (int i = 0; i < kParts; ++i) total += parts[i][channel];
  }
  return total;
}

template <class T>
CONVX_KERNEL(kThreads, 1)
pixels_kernel(const T* input, T* means, Shape shape) {
  constexpr int kNear = 16 / static_cast<int>(sizeof(T)), kChannels = kLine * kNear;
  constexpr int kGroups = kThreads / kLine;
  CONVX_SHARED(float, sums, [kGroups][kChannels]);
  CONVX_SHARED(float, parts, [kParts][kChannels]);
  const uint32_t image = shape.lines.quotient(blockIdx.x);
  const uint32_t first = shape.lines.remainder(blockIdx.x) * kChannels;
  const uint32_t vector = threadIdx.x % kLine, group = threadIdx.x / kLine, channel = first + vector * kNear;
  take_turn();
  float sum[kNear] = {};
  if (channel < shape.channels) {
    const T* const from = input + static_cast<int64_t>(image) * shape.pixels * shape.channels + channel;
    CONVX_UNROLL_TWICE
    for (uint32_t pixel = group; pixel < shape.pixels; pixel += kGroups) {
      const auto values = load<T, kNear>(from + static_cast<int64_t>(pixel) * shape.channels);
      CONVX_UNROLL
      for (int i = 0; i < kNear; ++i) sum[i] += widen(values.element[i]);
    }
  }
  CONVX_UNROLL
  for (int i = 0; i < kNear; ++i) sums[group][vector * kNear + i] = sum[i];
  const float total = total_of<kChannels, kGroups>(sums, parts);
  const uint32_t own = first + threadIdx.x;
  if (threadIdx.x < kChannels && own < shape.channels) {
    means[static_cast<int64_t>(image) * shape.channels + own] = narrow<T>(total * shape.per_pixel);
  }
}

template <class T>
CONVX_KERNEL(kThreads, 1)
planes_kernel(const T* input, T* means, Shape shape) {
  constexpr int kGroups = kThreads / kPlanes;
  CONVX_SHARED(float, sums, [kGroups][kPlanes]);
  CONVX_SHARED(float, parts, [kParts][kPlanes]);
  const uint32_t group = threadIdx.x % kGroups, own = threadIdx.x / kGroups;
  const int64_t plane = static_cast<int64_t>(blockIdx.x) * kPlanes + own;
  take_turn();
  float sum = 0;
  if (plane < shape.planes) {
    CONVX_UNROLL_TWICE
    for (uint32_t pixel = group; pixel < shape.pixels; pixel += kGroups) {
      sum += widen(load<T, 1>(input + plane * shape.pixels + pixel).element[0]);
    }
  }
  sums[group][own] = sum;
  const float total = total_of<kPlanes, kGroups>(sums, parts);
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * kPlanes + threadIdx.x;
  if (threadIdx.x < kPlanes && mine < shape.planes) means[mine] = narrow<T>(total * shape.per_pixel);
}

}  // namespace convx::plane_means
