// Which channel each slot of a fragment holds: an order in which lanes read neighbouring pixels, or channels,
// from different banks. Filters are packed in the same order.
#pragma once
#include "methods/pointwise/tensor/tiles.h"
#include "platform/gpu/platform.h"

namespace convx::pointwise::tensor {

// slot is 0 to 3; i counts the slot's values: 4 of 16 bits, 2 of 32.
template <int Bytes>
CONVX_DEVICE int channel_of_slot(Access access, int step, int slot, int i) {
  // 16 bytes of a row of channels are what a lane needs for two steps.
  if (access == kChannels) {
    constexpr int kValues = 8 / Bytes;
    return step / 2 * (8 * kValues) + slot * (2 * kValues) + step % 2 * kValues + i;
  }
  if constexpr (Bytes == 2) {
    // 8-byte reads of a row's pixels go by half warps: channels 0, 1, 4 and 5 lie in different banks.
    if (access == kShortRows) return step * 16 + (slot & 1) + 4 * (slot >> 1) + 2 * (i & 1) + 8 * (i >> 1);
    return step * 16 + slot + 4 * i;
  } else {
    // Planes of 49 words: lanes of neighbouring slots are 8 rows apart, 8 banks.
    if (access == kPlanes) return step / 4 * 32 + 8 * slot + 2 * (step % 4) + i;
    return step * 8 + slot + 4 * i;
  }
}

// Which filter of a group a row of a fragment holds: where channels are last a lane ends with neighbouring
// filters, 4 of a pair of fragments, or 8 with 64 lanes.
template <int Lanes>
CONVX_DEVICE int filter_of_row(Access access, int tile, int row) {
  if (access != kChannels) return tile * 16 + row;
  if (Lanes == 32) return tile / 2 * 32 + row % 8 * 4 + tile % 2 * 2 + row / 8;
  return tile / 2 * 32 + row / 4 * 8 + tile % 2 * 4 + row % 4;
}

}  // namespace convx::pointwise::tensor
