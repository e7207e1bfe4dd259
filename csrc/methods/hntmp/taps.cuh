// The arithmetic: one staged source channel times a thread's filters, added to its tile of sums.
#pragma once
#include "methods/hntmp/arguments.h"
#include "methods/hntmp/tiles.h"
#include "platform/gpu/platform.h"

namespace convx::hntmp {

// Neighbouring weights of one tap, widened.
template <int Count, class T>
CONVX_DEVICE void load_filters(Accumulator<T> (&to)[Count], const T* from) {
  Vector<T, Count> values = *reinterpret_cast<const Vector<T, Count>*>(from);
  CONVX_UNROLL
  for (int q = 0; q < Count; ++q) to[q] = widen(values.element[q]);
}

// One input row, of which the first `Outside` and the last are padding that is not staged.
template <int Width, int Outside, class A, class Staged>
CONVX_DEVICE void load_row(A (&row)[Width], const Staged* from) {
  CONVX_UNROLL
  for (int i = Outside; i < Width - Outside; ++i) row[i] = widen(from[i - Outside]);
}

// A 3x3 filter in registers; each input row serves the result rows that it touches.
template <int TileAt, class T, class A>
CONVX_DEVICE void add_filter(A (&sum)[tile_of(TileAt).sums()], const T* source, const T* weight, int block) {
  constexpr Tile kTile = tile_of(TileAt);
  constexpr int kTaps = kTile.filter_height * kTile.filter_width, kFilters = kTile.filters;
  constexpr bool kImage = kTile.staging == Staging::image;
  constexpr int kOutside = kTile.staging == Staging::window ? 0 : kTile.filter_width / 2;
  constexpr int kRowsOutside = kImage ? kTile.filter_height / 2 : 0;
  constexpr int kRows = kTile.height + kTile.filter_height - 1, kWidth = kTile.width + kTile.filter_width - 1;
  constexpr int kStaged = kTile.staged_columns(kWidth, sizeof(T));
  A filter[kTaps][kFilters];
  CONVX_UNROLL
  for (int tap = 0; tap < kTaps; ++tap) load_filters(filter[tap], weight + tap * block);
  unrolled_steps<kRows - 2 * kRowsOutside>([&](auto step) {
    const int input = step + kRowsOutside;
    A row[kWidth];
    load_row<kWidth, kOutside>(row, source + step * kStaged);
    CONVX_UNROLL
    for (int f = 0; f < kTile.filter_height; ++f) {
      const int y = input - f;
      if (y < 0 || y >= kTile.height) continue;
      CONVX_UNROLL
      for (int g = 0; g < kTile.filter_width; ++g) {
        CONVX_UNROLL
        for (int q = 0; q < kFilters; ++q) {
          CONVX_UNROLL
          for (int x = 0; x < kTile.width; ++x) {
            if (x + g < kOutside || x + g >= kWidth - kOutside) continue;
            A& to = sum[q * kTile.pixels() + y * kTile.width + x];
            to = multiply_add(row[x + g], filter[f * kTile.filter_width + g][q], to);
          }
        }
      }
    }
  });
}

// A filter of any height, one of its rows at a time.
template <int TileAt, class T, class A>
CONVX_DEVICE void add_filter_rows(A (&sum)[tile_of(TileAt).sums()], const A* source, const T* weight,
                                  int block, int filter_height) {
  constexpr Tile kTile = tile_of(TileAt);
  constexpr int kWidth = (kTile.width - 1) * kTile.stride + kTile.filter_width;
  CONVX_NO_UNROLL
  for (int f = 0; f < filter_height; ++f) {
    A filter[kTile.filter_width][kTile.filters];
    CONVX_UNROLL
    for (int g = 0; g < kTile.filter_width; ++g) load_filters(filter[g], weight + g * block);
    CONVX_UNROLL
    for (int y = 0; y < kTile.height; ++y) {
      A row[kWidth];
      load_row<kWidth, 0>(row, source + y * kTile.stride * kWidth);
      CONVX_UNROLL
      for (int g = 0; g < kTile.filter_width; ++g) {
        CONVX_UNROLL
        for (int q = 0; q < kTile.filters; ++q) {
          CONVX_UNROLL
          for (int x = 0; x < kTile.width; ++x) {
            A& to = sum[q * kTile.pixels() + y * kTile.width + x];
            to = multiply_add(row[x * kTile.stride + g], filter[g][q], to);
          }
        }
      }
    }
    source += kWidth;
    weight += kTile.filter_width * block;
  }
}

// Any filter, stride and dilation, one tap at a time.
template <int TileAt, class T, class A>
CONVX_DEVICE void add_taps(const Arguments<T, A>& a, A (&sum)[tile_of(TileAt).sums()], const A* source,
                           const T* weight) {
  constexpr Tile kTile = tile_of(TileAt);
  const int width = static_cast<int>(a.window_width.divisor);
  CONVX_NO_UNROLL
  for (int f = 0; f < a.filter_height; ++f) {
    CONVX_NO_UNROLL
    for (int g = 0; g < a.filter_width; ++g, weight += a.block_channels) {
      A filter[kTile.filters];
      load_filters(filter, weight);
      const A* row = source + f * a.dilation_h * width + g * a.dilation_w;
      CONVX_UNROLL
      for (int y = 0; y < kTile.height; ++y, row += a.stride_h * width) {
        CONVX_UNROLL
        for (int x = 0; x < kTile.width; ++x) {
          const A value = row[x * a.stride_w];
          CONVX_UNROLL
          for (int q = 0; q < kTile.filters; ++q) {
            A& to = sum[q * kTile.pixels() + y * kTile.width + x];
            to = multiply_add(value, filter[q], to);
          }
        }
      }
    }
  }
}

}  // namespace convx::hntmp
