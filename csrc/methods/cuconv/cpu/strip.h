// The products of one strip: neighbouring positions, a few vectors of them, of one block of filters. A loaded
// source vector serves every filter of the block; sums stay in registers.
#pragma once
#include "methods/cuconv/cpu/pack.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace row_products {

constexpr int kFilters = kRegisters == 32 ? 8 : 4;
constexpr int kVectors = CONVX_SIMD_BYTES == 16 ? 2 : 3;

// Products added up apart before they join the total: rounding errors grow with the length of a sum.
constexpr int64_t kProductsApart = 72;

// What a strip of any block of a group reads.
template <class S>
struct StripSource {
  const S* first;  // position 0 of the group's first channel
  int64_t channels, channel_step, taps;
  const int64_t* tap_offsets;
};

// total[filter][vector lanes] = the sums of Vectors vectors from `position` on. weight:
// [channel][tap][filter].
template <class A, class S, int Vectors>
CONVX_INLINE void add_strip(const StripSource<S>& source, const A* weight, int64_t position, A* total) {
  constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  const int64_t channels_apart = maximum(kProductsApart / source.taps, 1);
  const S* plane = source.first + position;
  for (int64_t begin = 0; begin < source.channels; begin += channels_apart) {
    const int64_t end = minimum(begin + channels_apart, source.channels);
    V sum[kFilters][Vectors] = {};
    for (int64_t c = begin; c < end; ++c, plane += source.channel_step) {
      for (int64_t t = 0; t < source.taps; ++t, weight += kFilters) {
        const S* values = plane + source.tap_offsets[t];
        V value[Vectors];
        CONVX_UNROLLED
        for (int v = 0; v < Vectors; ++v) {
          value[v] = load<L>(values + v * L);
          keep(value[v]);
        }
        CONVX_UNROLLED
        for (int k = 0; k < kFilters; ++k) {
          const V factor = broadcast<V>(weight[k]);
          CONVX_UNROLLED
          for (int v = 0; v < Vectors; ++v) sum[k][v] += value[v] * factor;
        }
      }
    }
    CONVX_UNROLLED
    for (int k = 0; k < kFilters; ++k) {
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) {
        A* const target = total + (k * Vectors + v) * L;
        store<L>(target, begin == 0 ? sum[k][v] : load<L>(target) + sum[k][v]);
      }
    }
  }
}

}  // namespace row_products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
