// The tilings that are compiled: what the planner may choose and the launcher has.
#pragma once

namespace convx::depthwise::channels {

struct Tile {
  int columns, rows;  // of results, a thread
  int depth;          // source rows in flight
  bool resident;      // filter in registers, otherwise in shared memory
  int blocks;         // of a multiprocessor, that the registers must allow
};

// Large tiles read each source element seldom and keep few rows in flight; the others are for problems that
// do not fill the device, and have all their rows in flight at once. The small tile has every activation; the
// others none, relu and relu6.
enum TileSize : int { kLarge = 0, kSmall = 1, kMedium = 2, kTiny = 3 };
constexpr int kAllRows = 9;

// Zero columns where there is no such tile: where 5x5 and 7x7 filters of stride 1 have much to do, that is
// channels_rolling's. pairs: two channels a lane, and so twice the registers. Filters of 25 or 49 taps leave
// few registers for the sums: they are in shared memory.
constexpr Tile tile_of(int filter, int stride, bool transposed, bool pairs, TileSize size) {
  if (size == kMedium) {
    if (filter != 3 || transposed) return {};
    return {stride == 1 ? 7 : 4, 2, kAllRows, true, 4};
  }
  if (size == kTiny) {
    if (filter == 7) return {};
    if (transposed) return {2, 2, kAllRows, true, filter == 3 ? 6 : 4};
    return {stride == 1 ? 2 : 1, 1, kAllRows, true, filter == 3 ? 6 : 3};
  }
  if (stride == 1) {
    if (size == kSmall) {
      return {4, filter == 7 ? 1 : 2,
              filter == 3   ? kAllRows
              : filter == 5 ? 3
                            : 2,
              filter == 3,
              filter == 3   ? 5
              : filter == 5 ? 4
                            : 2};
    }
    return filter == 3 ? Tile{7, 7, 2, true, 4} : Tile{};
  }
  if (transposed) {
    if (size == kSmall) return {4, 2, kAllRows, filter == 3, 4};
    return filter == 3 ? Tile{8, 8, 2, true, 4} : Tile{4, filter == 5 ? 8 : 4, 1, false, filter == 5 ? 4 : 3};
  }
  if (size == kSmall) {
    return {2, 2, filter == 3 ? kAllRows : filter == 5 ? 2 : 1, filter == 3, filter == 7 ? 3 : 4};
  }
  if (filter == 7) return pairs ? Tile{} : Tile{4, 2, 1, false, 2};
  return {4, 4, filter == 3 ? 2 : 1, filter == 3, filter == 3 ? 4 : 3};
}

// Filters of 25 taps and more come by way of shared memory where a block has little else to do. Large tiles
// read them once for many rows; for 9 taps the detour takes longer (1.2 times, N = 1 on an H200).
constexpr bool is_staged(int filter, TileSize size) {
  return filter > 3 && size != kLarge;
}

}  // namespace convx::depthwise::channels
