// The inner loop: vector lanes are result channels, an input element is broadcast to them, and a row of
// pixels times two vectors of channels stays in registers.
#pragma once
#include <utility>

#include "methods/epilogue_cpu.h"
#include "methods/hntmp/cpu/job.h"
#include "platform/cpu/rows.h"
#include "platform/cpu/transpose.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace owning_channels {

// Staged input: [channel][row][phase][column] of accumulators, padding and all. Columns are dealt out by
// their remainder of the stride, so that what one tap meets along a row of pixels is contiguous.
template <class A>
struct Window {
  const A* data;           // of the first pixel
  const int64_t* offsets;  // of each product's value
  int64_t products;
};

constexpr int kMostPixels = CONVX_SIMD_BYTES == 64 ? 14 : 6;

// Adds the window's products to the sums of Pixels neighbours: sums[vector * vector_step + pixel * L + lane].
// They are summed apart first: one sum over all channels would have a rounding error that grows with them.
template <class A, int Pixels>
__attribute__((noinline)) void add_products(const Window<A>& window, const A* weight, bool first, A* sums,
                                            int64_t vector_step) {
  constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  V low[Pixels], high[Pixels];
  CONVX_UNROLLED
  for (int p = 0; p < Pixels; ++p) low[p] = high[p] = V{};
  for (int64_t i = 0; i < window.products; ++i, weight += 2 * L) {
    const A* row = window.data + window.offsets[i];
    const V left = load<L>(weight), right = load<L>(weight + L);
    CONVX_UNROLLED
    for (int p = 0; p < Pixels; ++p) {
      const V value = broadcast<V>(row[p]);
      low[p] += value * left;
      high[p] += value * right;
    }
  }
  CONVX_UNROLLED
  for (int p = 0; p < Pixels; ++p) {
    store<L>(sums + p * L, first ? low[p] : low[p] + load<L>(sums + p * L));
    store<L>(sums + vector_step + p * L, first ? high[p] : high[p] + load<L>(sums + vector_step + p * L));
  }
}

template <class A>
using AddProducts = void (*)(const Window<A>&, const A*, bool, A*, int64_t);

template <class A, int... Less>
AddProducts<A> add_products_of(int64_t pixels, std::integer_sequence<int, Less...>) {
  static constexpr AddProducts<A> kTable[] = {add_products<A, Less + 1>...};
  return kTable[pixels - 1];
}

}  // namespace owning_channels
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
