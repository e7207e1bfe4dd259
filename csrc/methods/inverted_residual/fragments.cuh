// Fragments of products by mma.sync. A step of the depth is 16 channels; packed filters (pack.cuh) are in the
// order in which lanes read them.
#pragma once
#include "platform/gpu/fragments.h"
#include "platform/gpu/mma.h"

namespace convx::inverted_residual {

// Filters of a pair of tiles, a step of the depth: the lane's words of the first tile, then of the second.
struct PairFilters {
  uint32_t word[4];

  PairFilters() = default;
  CONVX_DEVICE explicit PairFilters(const unsigned char* lanes_own) {
    const auto read = *reinterpret_cast<const Vector<uint32_t, 4>*>(lanes_own);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) word[i] = read.element[i];
  }
};

// A pair of tiles: of its 16 channels a lane holds four neighbours, 4 * (lane % 4) and on, in two rows.
struct PairSums {
  float tile[2][4];

  // Of the lane's four channels, in row lane / 4 + 8 * half.
  CONVX_DEVICE float at(int half, int channel) const { return tile[channel / 2][2 * half + channel % 2]; }
  CONVX_DEVICE float& at(int half, int channel) { return tile[channel / 2][2 * half + channel % 2]; }

  // The same values in both rows.
  CONVX_DEVICE explicit PairSums(const Vector<float, 4>& values) {
    CONVX_UNROLL
    for (int channel = 0; channel < 4; ++channel) at(0, channel) = at(1, channel) = values.element[channel];
  }
  PairSums() = default;
  CONVX_DEVICE PairSums(const Vector<float, 4>& first, const Vector<float, 4>& second) {
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) tile[0][i] = first.element[i], tile[1][i] = second.element[i];
  }
  CONVX_DEVICE Vector<float, 4> half(int of) const {
    return {{tile[of][0], tile[of][1], tile[of][2], tile[of][3]}};
  }
  CONVX_DEVICE PairSums& operator+=(const PairSums& other) {
    CONVX_UNROLL
    for (int i = 0; i < 8; ++i) tile[i / 4][i % 4] += other.tile[i / 4][i % 4];
    return *this;
  }

  template <int Lanes, class T>
  CONVX_DEVICE void add(const uint32_t (&pixels)[4], const PairFilters& filters) {
    multiply_fragments<Lanes, T>(tile[0], pixels, filters.word[0], filters.word[1]);
    multiply_fragments<Lanes, T>(tile[1], pixels, filters.word[2], filters.word[3]);
  }
};

}  // namespace convx::inverted_residual
