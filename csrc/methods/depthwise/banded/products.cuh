// Sums along rows as products with band matrices: result[y][x] = sum over filter rows r of
// sum_k source[y + r][x0 + k] band_r[k][x - x0], where band_r[k][n] = filter[r][k - n], zero outside of the
// filter. For 16 results of a row and up to 33 taps that is three fragments of depth, and a lane's words of a
// band are pairs of neighbouring taps: nothing is unrolled in memory.
#pragma once
#include "methods/depthwise/banded/staging.cuh"
#include "platform/gpu/mma.h"

namespace convx::depthwise::banded {

// A lane's part of fragments: of a column of b, and of a row of a, the same four values of the depth.
template <int Lanes>
struct Lane {
  using F = Fragment<Lanes>;
  static constexpr int kHalves = kSide / F::kColumns;  // fragments side by side that make a tile
  int lane;

  CONVX_DEVICE Lane() : lane(static_cast<int>(threadIdx.x) % Lanes) {}
  // Where it reads in rows that begin with the depth.
  CONVX_DEVICE int offset_of_a(int pitch) const { return F::row_of_a(lane, 0) * pitch + 4 * F::slot(lane); }
  // And in a band of rows of `elements`: value `depth` less the column, which may lie Margin before the
  // first.
  template <int Margin>
  CONVX_DEVICE int offset_of_b(int elements) const {
    const int column = F::column_of_b(lane), odd = column & 1;
    return odd * (elements - 1) + Margin + 4 * F::slot(lane) - column;
  }
};

template <int Lanes>
CONVX_DEVICE void read_a(uint32_t (&a)[Fragment<Lanes>::kWordsA], const uint16_t* place, int pitch) {
  using Pair = Vector<uint32_t, 2>;
  const Pair upper = *reinterpret_cast<const Pair*>(place);
  if constexpr (Lanes == 32) {
    const Pair lower = *reinterpret_cast<const Pair*>(place + 8 * pitch);
    a[0] = upper.element[0], a[1] = lower.element[0], a[2] = upper.element[1], a[3] = lower.element[1];
  } else {
    a[0] = upper.element[0], a[1] = upper.element[1];
  }
}

CONVX_DEVICE uint32_t word_at(const uint16_t* place) {
  return *reinterpret_cast<const uint32_t*>(place);
}

// A warp's sums: Count times Across fragments side by side, zero at first.
template <int Lanes, int Count, int Across>
struct Sums {
  using F = Fragment<Lanes>;
  float at[Count][Across][4];

  CONVX_DEVICE Sums() {
    CONVX_UNROLL
    for (int i = 0; i < Count * Across * 4; ++i) at[i / (Across * 4)][i / 4 % Across][i % 4] = 0;
  }
  // body(which of Count, row of the fragment, column, sum) of each.
  template <class Body>
  CONVX_DEVICE void for_each(const Body& body) const {
    const int lane = static_cast<int>(threadIdx.x) % Lanes;
    CONVX_UNROLL
    for (int i = 0; i < Count * Across * 4; ++i) {
      const int count = i / (Across * 4), part = i / 4 % Across, place = i % 4;
      body(count, F::row(lane, place), part * F::kColumns + F::column(lane, place), at[count][part][place]);
    }
  }
};

}  // namespace convx::depthwise::banded
