// Where a lane has the taps of its filter.
#pragma once
#include "platform/gpu/opaque.h"
#include "platform/gpu/platform.h"

namespace convx::filter2d::strip {

// The taps of one filter of the bank in shared memory: held in registers, or read again for every image row.
template <int Filter>
class Taps {
 public:
  static constexpr int kPieces = (Filter + 3) / 4;  // of four taps, that a row takes
  static constexpr bool kHeld = Filter <= 5;  // the taps of larger filters would fill a lane's registers
  using Piece = Vector<float, 4>;

  CONVX_DEVICE Taps(const Piece* taps, int index) : taps_(taps), first_(index * Filter * kPieces) {
    if constexpr (kHeld) {
      CONVX_UNROLL
      for (int r = 0; r < Filter; ++r) read_shared(r, held_[r]);
    }
  }
  CONVX_DEVICE void next_image_row() {
    if constexpr (!kHeld) make_opaque(first_);
  }
  CONVX_DEVICE void read(int r, float (&row)[Filter]) const {
    if constexpr (kHeld) {
      CONVX_UNROLL
      for (int q = 0; q < Filter; ++q) row[q] = held_[r][q];
    } else {
      read_shared(r, row);
    }
  }

 private:
  CONVX_DEVICE void read_shared(int r, float (&row)[Filter]) const {
    CONVX_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      const Piece four = taps_[first_ + r * kPieces + piece];
      CONVX_UNROLL
      for (int q = 4 * piece; q < 4 * piece + 4 && q < Filter; ++q) row[q] = four.element[q - 4 * piece];
    }
  }

  const Piece* taps_;
  uint32_t first_;
  float held_[kHeld ? Filter : 1][Filter];
};

}  // namespace convx::filter2d::strip
