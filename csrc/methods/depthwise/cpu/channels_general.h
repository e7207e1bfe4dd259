// channels_last forward and input gradient of any filter, stride and dilation: lanes along channels, one
// target pixel at a time, four vectors of channels in registers.
#pragma once
#include "methods/depthwise/cpu/channels_rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

template <class T>
struct ChannelGeneral {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int kBlocks = 4;  // vectors of channels at a time

  const Job& job;
  int64_t taps = job.filter_height * job.filter_width;
  int64_t blocks = ceil_divide(job.channels, L);
  Ending<T> ending{job.epilogue};

  int64_t tasks() const { return job.batch * job.target_height; }

  // One target pixel, Count blocks of channels from `block`. columns holds the source column of each tap or
  // -1.
  template <int Count>
  CONVX_INLINE void pixel(const T* image, const int64_t* columns, const int64_t* rows, const A* packed,
                          int64_t block, T* target) const {
    using V = Simd<A, L>;
    int64_t channel[Count];
    V sum[Count];
    CONVX_UNROLLED
    for (int b = 0; b < Count; ++b) {
      channel[b] = minimum((block + b) * L, job.channels - L);
      sum[b] = begin_of<T, L>(job.epilogue, channel[b]);
    }
    for (int64_t f = 0; f < job.filter_height; ++f) {
      if (rows[f] < 0) continue;
      for (int64_t g = 0; g < job.filter_width; ++g) {
        if (columns[g] < 0) continue;
        const T* source = image + (rows[f] * job.source_width + columns[g]) * job.channels;
        const A* weight = packed + (f * job.filter_width + g) * L;
        CONVX_UNROLLED
        for (int b = 0; b < Count; ++b) {
          sum[b] += load<L>(source + channel[b]) * load<L>(weight + (block + b) * taps * L);
        }
      }
    }
    CONVX_UNROLLED
    for (int b = 0; b < Count; ++b) {
      const V scaled = rescaled<T, L>(sum[b], job.epilogue, channel[b]);
      store<L>(target + channel[b], ending.template operator()<L>(scaled, target + channel[b]));
    }
  }

  void run(int64_t begin, int64_t end) const {
    Scratch weights(blocks * taps * L * static_cast<int64_t>(sizeof(A)));
    A* packed = weights.as<A>();
    pack_channel_weights(static_cast<const T*>(job.weight), taps, job.channels, 0, blocks, job.flipped,
                         packed);
    Scratch places((job.filter_height + job.filter_width * job.target_width) *
                   static_cast<int64_t>(sizeof(int64_t)));
    int64_t* rows = places.as<int64_t>();
    int64_t* columns = rows + job.filter_height;
    const AxisRule down{job.pad_top, job.stride_h, job.dilation_h, job.source_height, job.transposed};
    const AxisRule across{job.pad_left, job.stride_w, job.dilation_w, job.source_width, job.transposed};
    for (int64_t target = 0; target < job.target_width; ++target) {
      for (int64_t g = 0; g < job.filter_width; ++g) {
        columns[target * job.filter_width + g] = across.source(target, g);
      }
    }
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / job.target_height;
      for (int64_t f = 0; f < job.filter_height; ++f) rows[f] = down.source(task % job.target_height, f);
      const T* source =
          static_cast<const T*>(job.source) + image * job.source_height * job.source_width * job.channels;
      T* target = static_cast<T*>(job.result) + task * job.target_width * job.channels;
      for (int64_t column = 0; column < job.target_width; ++column, target += job.channels) {
        const int64_t* places_of_taps = columns + column * job.filter_width;
        int64_t block = 0;
        for (; block + kBlocks <= blocks; block += kBlocks) {
          pixel<kBlocks>(source, places_of_taps, rows, packed, block, target);
        }
        for (; block < blocks; ++block) pixel<1>(source, places_of_taps, rows, packed, block, target);
      }
    }
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
