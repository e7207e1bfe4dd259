// Fragments of products by mma.sync. A step of the depth is 32 bytes of a row, 16 channels or 8 of float32;
// packed filters (pack.cuh) are in the order in which lanes read them.
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

// What products take of a lane's words: them, or of float32 two parts of TF32 each.
template <class T>
struct Parts {
  const uint32_t (&word)[4];

  CONVX_DEVICE explicit Parts(const uint32_t (&words)[4]) : word(words) {}
};

template <>
struct Parts<float> {
  uint32_t high[4], low[4];

  CONVX_DEVICE explicit Parts(const uint32_t (&words)[4]) {
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) part_tf32(words[i], high[i], low[i]);
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
  CONVX_DEVICE void add(const Parts<T>& pixels, const Parts<T>& filters) {
    CONVX_UNROLL
    for (int i = 0; i < 2; ++i) {
      if constexpr (sizeof(T) == 2) {
        multiply_fragments<Lanes, T>(tile[i], pixels.word, filters.word[2 * i], filters.word[2 * i + 1]);
      } else {
        // Matrix units drop digits of long sums: each step is summed by itself, and added in float32.
        float part[4] = {};
        multiply_fragments<Lanes, tf32>(part, pixels.low, filters.high[2 * i], filters.high[2 * i + 1]);
        multiply_fragments<Lanes, tf32>(part, pixels.high, filters.low[2 * i], filters.low[2 * i + 1]);
        multiply_fragments<Lanes, tf32>(part, pixels.high, filters.high[2 * i], filters.high[2 * i + 1]);
        CONVX_UNROLL
        for (int k = 0; k < 4; ++k) tile[i][k] += part[k];
      }
    }
  }
};

}  // namespace convx::inverted_residual
