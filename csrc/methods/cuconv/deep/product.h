// The product of matrices that a sweep of few pixels is: its depth is the channels of all taps.
#pragma once
#include "methods/deep/geometry.h"
#include "problem/sweep.h"

namespace convx::cuconv::deep {

using namespace convx::deep;

// Channels that products take of a tap: whole pieces.
inline int64_t tap_channels(const Sweep& s, int64_t element_bytes) {
  return round_up(s.source_channels, kPieceBytes / element_bytes);
}

inline matrix::Product product_of(const Sweep& s, int64_t element_bytes) {
  return {s.result_channels, s.batch * s.result_plane(), s.taps() * tap_channels(s, element_bytes), false};
}

}  // namespace convx::cuconv::deep
