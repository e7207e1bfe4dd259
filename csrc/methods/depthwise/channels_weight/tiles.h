// The tiles that channels_weight is compiled for.
#pragma once
#include <algorithm>
#include <cstdint>

namespace convx::depthwise {

constexpr int64_t kChannelsWeightSmallBlock = 128;  // threads; large problems take small blocks

// Threads that a multiprocessor's registers hold, in one block or several: 128, 168 or 255 registers a
// thread, as the sums and the waiting output rows need. Waves of 64 lanes have 256 registers up to 256
// threads.
constexpr int64_t channels_weight_resident(int64_t element_bytes, int64_t filter, int64_t stride,
                                           int64_t channels, int64_t columns) {
  const bool half = element_bytes == 2;
  if (filter == 3) return (channels == 2 && !half) || (stride == 2 && half) ? 384 : 512;
  if (filter == 5) return channels * columns == 14 || (channels == 1 && stride == 2) ? 256 : 384;
  return half ? 256 : 384;
}
constexpr int64_t channels_weight_threads(int64_t lanes, int64_t element_bytes, int64_t filter,
                                          int64_t stride, int64_t channels, int64_t columns) {
  const int64_t resident = channels_weight_resident(element_bytes, filter, stride, channels, columns);
  return lanes == 64 ? std::min<int64_t>(resident, 256) : resident;
}
// On waves of 64 lanes the largest tile's sums and rows leave no registers for its addresses.
constexpr bool channels_weight_fits(int64_t lanes, int64_t filter, int64_t channels, int64_t columns) {
  return lanes == 32 || filter != 5 || channels * columns != 14;
}
template <class T, int Lanes, int Filter, int Stride, int Channels, int Columns>
constexpr int kChannelsWeightThreads =
    static_cast<int>(channels_weight_threads(Lanes, sizeof(T), Filter, Stride, Channels, Columns));

}  // namespace convx::depthwise
