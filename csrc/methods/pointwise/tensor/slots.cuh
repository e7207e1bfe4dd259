// Which channel each slot of a fragment holds: an order in which lanes read neighbouring pixels, or channels,
// from different banks. Filters are packed in the same order.
#pragma once
#include "methods/matrix/channel_order.cuh"
#include "methods/pointwise/tensor/tiles.h"
#include "platform/gpu/platform.h"

namespace convx::pointwise::tensor {

// slot is 0 to 3; i counts the slot's values: 4 of 16 bits, 2 of 32.
template <int Bytes>
CONVX_DEVICE int channel_of_slot(Access access, int step, int slot, int i) {
  if (access == kChannels) return matrix::ChannelOrder::channel<Bytes>(step, slot, i);
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

// Which filter of a group a row of a fragment holds.
template <int Lanes>
CONVX_DEVICE int filter_of_row(Access access, int tile, int row) {
  return access == kChannels ? matrix::ChannelOrder::filter<Lanes>(tile, row) : tile * 16 + row;
}

// Of packed filters (matrix/pack.cuh).
struct Order {
  Access access;

  template <int Bytes>
  CONVX_DEVICE int channel(int step, int slot, int i) const {
    return channel_of_slot<Bytes>(access, step, slot, i);
  }
  template <int Lanes>
  CONVX_DEVICE int filter(int tile, int row) const {
    return filter_of_row<Lanes>(access, tile, row);
  }
};

}  // namespace convx::pointwise::tensor
