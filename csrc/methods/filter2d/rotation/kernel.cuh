// Filters of any size at stride 1: a lane holds kColumns columns of one image row after the other, for kRows
// result rows (row reuse), and gets the columns further right by rotation, one shuffle a column (column
// reuse).
#pragma once
#include "methods/epilogue.cuh"
#include "methods/filter2d/pixel.cuh"
#include "methods/filter2d/rotation/tiles.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/pack.h"

namespace convx::filter2d::rotation {

template <class T>
struct Arguments {
  const T* images;
  const FilterElement<T>* filters;
  const FilterElement<T>* bias;  // null without
  T* result;
  int height, width, out_height, out_width;
  int top, left;  // padding; left with the shift
  int filter_height, filter_width;
  int shift, pieces;
  int step, groups_per_warp;
  FastDivide filters_count, group_lanes, segments, row_tiles;
  uint32_t units;
  Border border;
  Activation activation;
};

// Reads a lane's columns of image rows.
template <class T, bool Aligned>
struct Reader {
  const T* image;
  int height, width;
  Border border;
  int column;
  bool loads, inside;  // whether the lane reads at all, and needs no border at left and right
  int edge[kColumns];  // columns where it does; -1 for zero

  CONVX_DEVICE Vector<T, kColumns> row(int index) const {
    Vector<T, kColumns> pixels = {};
    const int place = border_index<int>(index, height, border);
    if (!loads || place < 0) return pixels;
    const T* from = image + static_cast<int64_t>(place) * width;
    if (inside && Aligned) return load<T, kColumns>(from + column);
    CONVX_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      if (edge[j] >= 0) pixels.element[j] = from[edge[j]];
    }
    return pixels;
  }
};

template <class T>
CONVX_DEVICE Accumulator<T> to_accumulator(T pixel) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<float>(pixel);
  } else {
    return widen(pixel);
  }
}

// A row's products with one piece of a tap row. Whole: all the piece's taps are the filter's.
template <bool Whole, class A>
CONVX_DEVICE void add_piece(const Vector<A, kColumns>& taps, const A (&window)[2 * kColumns], int first,
                            int last, A (&sum)[kColumns]) {
  CONVX_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    // Not zeros instead: what lies outside the filter may be infinite.
    if (!Whole && (j < first || j > last)) continue;
    CONVX_UNROLL
    for (int v = 0; v < kColumns; ++v) sum[v] = multiply_add(window[v + j], taps.element[j], sum[v]);
  }
}

template <class T, bool Aligned>
CONVX_DEVICE void store_row(T* to, const Accumulator<T> (&sum)[kColumns], int count) {
  if constexpr (Aligned && sizeof(T) >= 4) {
    Vector<T, kColumns> pixels;
    CONVX_UNROLL
    for (int v = 0; v < kColumns; ++v) pixels.element[v] = sum[v];
    store<T, kColumns>(to, pixels);
  } else if constexpr (Aligned && sizeof(T) == 2) {
    store<uint32_t, 2>(reinterpret_cast<uint32_t*>(to),
                       Vector<uint32_t, 2>{{narrow_pair<T>(sum[0], sum[1]), narrow_pair<T>(sum[2], sum[3])}});
  } else if constexpr (Aligned) {
    const uint32_t bytes = saturated_byte(sum[0]) | saturated_byte(sum[1]) << 8 |
                           saturated_byte(sum[2]) << 16 | saturated_byte(sum[3]) << 24;
    store<uint32_t, 1>(reinterpret_cast<uint32_t*>(to), Vector<uint32_t, 1>{{bytes}});
  } else {
    CONVX_UNROLL
    for (int v = 0; v < kColumns; ++v) {
      if (v < count) write_pixel<T>(to + v, sum[v]);
    }
  }
}

template <int Lanes, class T, bool Aligned>
CONVX_KERNEL(kThreads, 5)
filter_rotation_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using A = Accumulator<T>;
  using F = FilterElement<T>;
  using Piece = Vector<A, kColumns>;
  const uint32_t block = a.filters_count.quotient(blockIdx.x);
  const int f = static_cast<int>(blockIdx.x - block * a.filters_count.divisor);

  // Lane -> (image, tile of rows, segment, strip).
  const int lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint32_t warp = block * (kThreads / Lanes) + threadIdx.x / Lanes;
  const int group = static_cast<int>(a.group_lanes.quotient(lane));
  const int within = lane - group * static_cast<int>(a.group_lanes.divisor);
  uint32_t unit = warp * a.groups_per_warp + group;
  const bool live = group < a.groups_per_warp && unit < a.units;
  if (!live) unit = a.units - 1;
  const uint32_t above = a.segments.quotient(unit), image = a.row_tiles.quotient(above);
  const int segment = static_cast<int>(unit - above * a.segments.divisor);
  const int result_row = static_cast<int>(above - image * a.row_tiles.divisor) * kRows;
  const int result_column = (segment * a.step + within) * kColumns;
  const bool makes = live && within < a.step && result_column < a.out_width;

  Reader<T, Aligned> reader;
  reader.image = a.images + static_cast<int64_t>(image) * a.height * a.width;
  reader.height = a.height, reader.width = a.width, reader.border = a.border;
  reader.column = result_column - a.left;
  reader.loads = live;
  reader.inside = reader.column >= 0 && reader.column + kColumns <= a.width;
  CONVX_UNROLL
  for (int j = 0; j < kColumns; ++j) reader.edge[j] = border_index<int>(reader.column + j, a.width, a.border);
  const int first_row = result_row - a.top;
  take_turn();
  Vector<T, kColumns> next = reader.row(first_row);

  CONVX_DYNAMIC_SHARED(shared);
  Piece* const taps = reinterpret_cast<Piece*>(shared);
  const F* filter = a.filters + static_cast<int64_t>(f) * (a.filter_height * a.filter_width);
  for (int r = 0; r < a.filter_height; ++r) {
    for (int q = static_cast<int>(threadIdx.x); q < a.filter_width; q += kThreads) {
      const int place = q + a.shift;
      taps[r * a.pieces + place / kColumns].element[place % kColumns] =
          widen(load<F, 1>(filter + (r * a.filter_width + q)).element[0]);
    }
  }
  block_barrier();

  A sum[kRows][kColumns];
  const A bias = bias_of(a.bias, f);
  CONVX_UNROLL
  for (int o = 0; o < kRows; ++o) {
    CONVX_UNROLL
    for (int v = 0; v < kColumns; ++v) sum[o][v] = bias;
  }
  const int last_column = a.shift + a.filter_width - 1;
  CONVX_NO_UNROLL
  for (int i = 0; i < kRows + a.filter_height - 1; ++i) {
    A own[kColumns], window[2 * kColumns];
    CONVX_UNROLL
    for (int j = 0; j < kColumns; ++j) own[j] = window[kColumns + j] = to_accumulator(next.element[j]);
    if (i + 1 < kRows + a.filter_height - 1) next = reader.row(first_row + i + 1);
    CONVX_NO_UNROLL
    for (int piece = 0; piece < a.pieces; ++piece) {
      CONVX_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        window[j] = window[kColumns + j];
        window[kColumns + j] = shuffle<Lanes>(own[j], (lane + piece + 1) % Lanes);
      }
      const int first = a.shift - piece * kColumns, last = last_column - piece * kColumns;
      const bool whole = first <= 0 && last >= kColumns - 1;
      CONVX_UNROLL
      for (int o = 0; o < kRows; ++o) {
        const int r = i - o;
        if (r < 0 || r >= a.filter_height) continue;
        const Piece four = taps[r * a.pieces + piece];
        if (whole) {
          add_piece<true>(four, window, first, last, sum[o]);
        } else {
          add_piece<false>(four, window, first, last, sum[o]);
        }
      }
    }
  }
  T* result = a.result +
              (static_cast<int64_t>(image) * a.filters_count.divisor + f) * a.out_height * a.out_width +
              (static_cast<int64_t>(result_row) * a.out_width + result_column);
  CONVX_UNROLL
  for (int o = 0; o < kRows; ++o) {
    if (!makes || result_row + o >= a.out_height) continue;
    activate<T>(sum[o], a.activation);
    store_row<T, Aligned>(result + static_cast<int64_t>(o) * a.out_width, sum[o],
                          a.out_width - result_column);
  }
}

}  // namespace convx::filter2d::rotation
