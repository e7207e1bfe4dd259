// The order in which fragments hold filters and channels where channels are last.
#pragma once
#include "platform/gpu/platform.h"

namespace convx::matrix {

struct ChannelOrder {
  // 16 bytes of a row of channels are what a lane needs for two steps. i counts a slot's values.
  template <int Bytes>
  CONVX_DEVICE static int channel(int step, int slot, int i) {
    constexpr int kValues = 8 / Bytes;
    return step / 2 * (8 * kValues) + slot * (2 * kValues) + step % 2 * kValues + i;
  }
  // A lane ends with neighbouring filters, 4 of a pair of fragments, or 8 with 64 lanes.
  template <int Lanes>
  CONVX_DEVICE static int filter(int tile, int row) {
    if (Lanes == 32) return tile / 2 * 32 + row % 8 * 4 + tile % 2 * 2 + row / 8;
    return tile / 2 * 32 + row / 4 * 8 + tile % 2 * 4 + row % 4;
  }
  // Where the 4 bytes of a filter's channel are among fragments that are packed so, `steps` to a filter.
  template <int Lanes>
  CONVX_DEVICE static int64_t word(int filter, int channel, int steps) {
    const int near = filter % 32, step = channel / 16 * 2 + channel % 4 / 2, slot = channel % 16 / 4;
    const int row = Lanes == 32 ? near / 4 + near % 2 * 8 : near / 8 * 4 + near % 4;
    const int tile = filter / 32 * 2 + (Lanes == 32 ? near / 2 % 2 : near / 4 % 2);
    const int lane = Lanes == 32 ? row % 8 * 4 + slot : slot * 16 + row;
    const int of_lane = Lanes == 32 ? channel % 2 * 2 + row / 8 : channel % 2;
    return ((static_cast<int64_t>(tile) * steps + step) * Lanes + lane) * (128 / Lanes) + of_lane;
  }
};

// A lane's sums of a pixel, of each pair of fragments of 16 filters in that order kNear neighbours. The i-th
// is in a fragment, and has an index there.
template <int Lanes>
struct NearFilters {
  static constexpr int kPlaces = Lanes == 32 ? 2 : 1, kNear = 8 / kPlaces;
  CONVX_DEVICE static int first_filter(int lane) { return Lanes == 32 ? lane / 4 * 4 : lane / 16 * 8; }
  CONVX_DEVICE static constexpr int fragment(int i) { return i / (kNear / 2); }
  CONVX_DEVICE static constexpr int index(int i, int place) {
    return Lanes == 32 ? i % 2 * 2 + place : i % 4;
  }
};

}  // namespace convx::matrix
