// The tiles that channels_weight is compiled for.
#pragma once
#include <cstdint>

namespace convx::depthwise {

// Blocks of 128 threads that a multiprocessor holds: 128, 168 or 255 registers a thread, as the sums and the
// waiting output rows need.
constexpr int kChannelsWeightThreads = 128;
constexpr int channels_weight_blocks(int64_t channels, int64_t filter, int64_t stride, int64_t columns) {
  if (filter == 3) return channels == 2 && stride == 2 ? 3 : 4;
  return channels == 2 && columns == 7 ? 2 : 3;
}

}  // namespace convx::depthwise
