// What a thread of the GPU kernels computes: so many filters times a tile of pixels, in registers.
#pragma once
#include <cstdint>

#include "problem/problem.h"

namespace convx::hntmp {

// How a warp brings its channels into shared memory. window: the tile's input with its halo, element by
// element, zeros for the padding. image: the whole image, which is the tile, in 16-byte pieces. rows: whole
// rows in 8-byte pieces. In the last two, taps left and right of the image are not computed at all.
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

constexpr Tile tile_of(int index) {
  return kTileTable[index];
}

// The tiles that keep a whole filter are for float32: 16 bits have faster units than these, and float64's
// sums and rows take twice the registers.
constexpr bool has_dtype(int index, DType dtype) {
  if (dtype == DType::float64) return index == kTaps3 || index == kTaps5 || index >= kAny;
  return dtype == DType::float32 || index >= kTaps1;
}

}  // namespace convx::hntmp
