// Filters in panels of vectors of output channels, as products on CPUs read them, and how many products they
// sum at a time.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "problem/divide.h"

namespace convx::panels {

constexpr int64_t kPanel = 2;  // vectors of channels that a product makes at once

// Products that are summed apart before they join a result's total. Rounding errors of a sum of N are least
// where sqrt(N) are; some times as many leave errors like torch's and take no more time than all at once.
inline int64_t products_apart(int64_t products, double roots) {
  return static_cast<int64_t>(std::ceil(roots * std::sqrt(static_cast<double>(products))));
}
inline int64_t chain_of(int64_t products) {
  return std::max<int64_t>(96, products_apart(products, 6));
}

// Of (channels, depth) to panels of [depth][vectors][lanes], zeros behind the last channel. place: of a depth
// in a channel's filter.
template <class Place>
void pack(const float* weight, int64_t channels, int64_t depth, int64_t lanes, int64_t vectors, float* packed,
          const Place& place) {
  for (int64_t first = 0; first < channels; first += vectors * lanes) {
    const int64_t width = std::min(vectors * lanes, round_up(channels - first, lanes));
    for (int64_t d = 0; d < depth; ++d) {
      const float* const from = weight + place(d);
      for (int64_t lane = 0; lane < width; ++lane, ++packed) {
        *packed = first + lane < channels ? from[(first + lane) * depth] : 0.0f;
      }
    }
  }
}

}  // namespace convx::panels
