// What a thread of the GPU kernels computes: so many filters times a tile of pixels, in registers.
#pragma once
#include <cstdint>

#include "problem/problem.h"

namespace convx::hntmp {

// How a warp brings its channels into shared memory. window: the tile's input with its halo, element by
// element, zeros for the padding. image: the whole image, which is the tile, in 16-byte pieces. rows: whole
// rows in pairs of elements. In the last two, taps left and right of the image are not computed at all.
enum class Staging : uint8_t { window, image, rows };

struct Tile {
  const char* candidate;
  int filters, height, width;               // of a thread
  int filter_height, filter_width, stride;  // that the kernel is compiled for; 0: known at run time
  Staging staging;
  int stages;  // of a warp's ring: two arrive soonest where the copies are many and small

  constexpr int pixels() const { return height * width; }
  constexpr int sums() const { return filters * pixels(); }
  constexpr bool any() const { return stride == 0; }
  // Then inputs lie in shared memory as they came; else as the type that sums have.
  constexpr bool whole_filter() const { return filter_height > 0; }
  // No asynchronous copy has 2 bytes: windows of such elements come in pairs, from an even column on.
  constexpr bool pairs(int64_t element_bytes) const {
    return staging == Staging::rows || (whole_filter() && staging == Staging::window && element_bytes == 2);
  }
  // Of a row with so many columns that the tile's results need.
  constexpr int64_t staged_columns(int64_t needed, int64_t element_bytes) const {
    if (staging != Staging::window) return width;
    return pairs(element_bytes) ? (needed + 2) / 2 * 2 : needed;
  }
};

// A register loaded from shared memory costs about one issue slot, as a multiply-add does: so tiles are wide.
// Images of the common networks are multiples of 7. The 3x3 tiles keep a whole filter in registers and use
// each input row for three result rows; the others go through the filter's rows one at a time, in a third to
// a seventh of the code.
enum TileIndex : int {
  kWide,
  kSmall,
  kImage,
  kRows,
  kTaps1,
  kTaps3,
  kTaps5,
  kTaps7,
  kTaps1Stride2,
  kTaps3Stride2,
  kTaps5Stride2,
  kTaps7Stride2,
  kAny,
  kAnyLean,
  kTiles
};

constexpr Tile kTileTable[kTiles] = {
    {"tile", 2, 7, 7, 3, 3, 1, Staging::window, 2},    {"small", 2, 4, 7, 3, 3, 1, Staging::window, 2},
    {"image", 2, 7, 7, 3, 3, 1, Staging::image, 3},    {"rows", 1, 7, 14, 3, 3, 1, Staging::rows, 2},
    {"taps", 4, 4, 7, 0, 1, 1, Staging::window, 2},    {"taps", 2, 4, 7, 0, 3, 1, Staging::window, 2},
    {"taps", 2, 4, 7, 0, 5, 1, Staging::window, 2},    {"taps", 2, 4, 7, 0, 7, 1, Staging::window, 2},
    {"taps", 4, 4, 7, 0, 1, 2, Staging::window, 2},    {"taps", 2, 4, 7, 0, 3, 2, Staging::window, 2},
    {"taps", 2, 4, 7, 0, 5, 2, Staging::window, 2},    {"taps", 2, 4, 7, 0, 7, 2, Staging::window, 2},
    {"general", 4, 2, 7, 0, 0, 0, Staging::window, 2}, {"general", 1, 4, 7, 0, 0, 0, Staging::window, 2},
};

constexpr int log2_of(int power_of_two) {
  return power_of_two > 1 ? 1 + log2_of(power_of_two / 2) : 0;
}

constexpr Tile tile_of(int index) {
  return kTileTable[index];
}

// float64's sums and rows take twice the registers.
constexpr bool has_dtype(int index, DType dtype) {
  return dtype != DType::float64 || index == kTaps3 || index == kTaps5 || index >= kAny;
}

}  // namespace convx::hntmp
