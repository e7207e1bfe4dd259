// The tilings that are compiled: what the planner may choose and the launcher has.
#pragma once

namespace convx::depthwise::channels {

struct Tile {
  int columns, rows;  // of results, a thread
  bool resident;      // filter in registers, otherwise in shared memory
  int blocks;         // of a multiprocessor, that the registers must allow
};

// The small tile has every activation; the others none, relu and relu6.
enum TileSize : int { kLarge = 0, kSmall = 1, kOther = 2 };

// Zero columns where there is no such tile. wide_channels: two channels a lane, and so twice the registers.
// A filter of 25 or 49 taps for two channels leaves too few registers for the sums: it is not resident.
constexpr Tile tile_of(int filter, int stride, bool transposed, bool wide_channels, TileSize size) {
  if (size == kOther) return filter == 5 && stride == 1 && wide_channels ? Tile{4, 5, false, 4} : Tile{};
  if (stride == 1) {
    if (size == kSmall) return {4, filter == 7 ? 1 : 2, filter == 3, filter == 3 ? 5 : 4};
    if (filter == 3) return {7, 7, true, wide_channels ? 4 : 5};
    if (!wide_channels) return filter == 5 ? Tile{7, 7, false, 4} : Tile{4, 3, false, 4};
    return filter == 5 ? Tile{4, 7, true, 3} : Tile{};
  }
  if (transposed) {
    if (size == kSmall) return {4, 2, filter == 3, 4};
    return filter == 3 ? Tile{8, 8, true, 4} : Tile{4, filter == 5 ? 8 : 4, false, filter == 5 ? 4 : 3};
  }
  if (size == kSmall) return {2, 2, filter == 3, filter == 7 ? 3 : 4};
  if (filter == 7) return wide_channels ? Tile{} : Tile{4, 4, false, 3};
  return {4, 4, filter == 3, filter == 3 ? 4 : 3};
}

}  // namespace convx::depthwise::channels
