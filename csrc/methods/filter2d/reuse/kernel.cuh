// The paper's own forms for square filters, one column a lane, with each of the two reuses or without.
//
// Column reuse: of the S pixels of a row that a lane needs, it loads two or three; the others are its
// neighbours', exchanged by butterflies. Row reuse: a lane makes Rows result rows from Rows + S - 1 image
// rows, each read once. Lu, Zhang and Wang 2020, Algorithms 1 to 3; a select takes the place of their 64-bit
// packing.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/filter2d/pixel.cuh"
#include "methods/filter2d/reuse/tiles.h"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::reuse {

template <class T>
struct Arguments {
  const T* images;
  const FilterElement<T>* filters;
  const FilterElement<T>* bias;  // null without
  T* result;
  int height, width, out_height, out_width;
  int top, left;   // padding
  int chunk_rows;  // result rows of a warp, a multiple of Rows
  int filters_count;
  FastDivide segments, chunks;
  uint32_t units;  // warps with work
  Border border;
  Activation activation;
};

// Whether a lane loads pixel j of its row; it gets the others from its neighbours.
template <int Filter>
CONVX_DEVICE constexpr bool is_loaded(int j) {
  return j == 0 || j == Filter - 1 || (Filter == 7 && j == 4);
}

// Pixel j of every lane, from pixels j - Mask and j + Mask of the lanes Mask away.
template <int Lanes, int Mask, int Filter>
CONVX_DEVICE void butterfly(float (&pixel)[Filter], int j, int lane) {
  const float above = pixel[j + Mask], below = pixel[j - Mask];
  pixel[j] = shuffle_xor<Lanes>((lane & Mask) != 0 ? below : above, Mask);
}

template <int Lanes, int Filter>
CONVX_DEVICE void fill_by_butterflies(float (&pixel)[Filter], int lane) {
  if constexpr (Filter == 9) butterfly<Lanes, 4>(pixel, 4, lane);
  if constexpr (Filter >= 5) butterfly<Lanes, 2>(pixel, 2, lane);
  if constexpr (Filter == 9) butterfly<Lanes, 2>(pixel, 6, lane);
  CONVX_UNROLL
  for (int j = 1; j < Filter; j += 2) butterfly<Lanes, 1>(pixel, j, lane);
}

// Reads pixels of one image; Edge maps indices through the border.
template <bool Edge, class T, int Filter>
struct Reader {
  const T* image;
  int height, width;
  Border border;
  int column;                   // of tap 0
  int edge[Edge ? Filter : 1];  // column of every tap, -1 for zero

  CONVX_DEVICE void start(int first_column) {
    column = first_column;
    if constexpr (Edge) {
      CONVX_UNROLL
      for (int j = 0; j < Filter; ++j) edge[j] = near_border_index(first_column + j, width, border);
    }
  }
  CONVX_DEVICE const T* row(int index) const {
    const int inside = Edge ? near_border_index(index, height, border) : index;
    return Edge && inside < 0 ? nullptr : image + static_cast<int64_t>(inside) * width;
  }
  CONVX_DEVICE float pixel(const T* row, int j) const {
    if constexpr (Edge) {
      // Tested anew: the tests of all columns would fill AMD GPUs' scalar registers.
      uint32_t place = static_cast<uint32_t>(edge[j]);
      make_opaque(place);
      return row == nullptr || static_cast<int>(place) < 0 ? 0.0f : read_pixel(row + place);
    } else {
      return read_pixel(row + (column + j));
    }
  }
};

// The result rows of a warp, Rows at a time.
template <int Lanes, bool Columns, int Rows, bool Edge, class T, int Filter>
CONVX_DEVICE void walk(const Arguments<T>& a, const Reader<Edge, T, Filter>& reader,
                       const float (&tap)[Filter * Filter], float bias, int first_row, int result_column,
                       T* plane, int lane) {
  const int end = min(first_row + a.chunk_rows, a.out_height);
  CONVX_NO_UNROLL
  for (int start = first_row; start < end; start += Rows) {
    float sum[Rows];
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) sum[o] = bias;
    CONVX_UNROLL
    for (int i = 0; i < Rows + Filter - 1; ++i) {
      const T* row = reader.row(start - a.top + i);
      float pixel[Filter];
      CONVX_UNROLL
      for (int j = 0; j < Filter; ++j) {
        if (!Columns || is_loaded<Filter>(j)) pixel[j] = reader.pixel(row, j);
      }
      if constexpr (Columns) fill_by_butterflies<Lanes>(pixel, lane);
      CONVX_UNROLL
      for (int o = 0; o < Rows; ++o) {
        const int r = i - o;
        if (r < 0 || r >= Filter) continue;
        CONVX_UNROLL
        for (int j = 0; j < Filter; ++j) sum[o] = multiply_add(pixel[j], tap[r * Filter + j], sum[o]);
      }
    }
    activate<T>(sum, a.activation);
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) {
      if (start + o >= end || result_column >= a.out_width) continue;
      write_pixel<T>(plane + (static_cast<int64_t>(start + o) * a.out_width + result_column), sum[o]);
    }
  }
}

// All filters on the rows of a warp.
template <int Lanes, bool Columns, int Rows, bool Edge, class T, int Filter>
CONVX_DEVICE void run_bank(const Arguments<T>& a, const Reader<Edge, T, Filter>& reader, int first_row,
                           int result_column, T* result, int lane) {
  using F = FilterElement<T>;
  const int64_t plane = static_cast<int64_t>(a.out_height) * a.out_width;
  CONVX_NO_UNROLL
  for (int f = 0; f < a.filters_count; ++f, result += plane) {
    // Per lane: as many scalar loads at once, AMD GPUs have no scalar registers for.
    uint32_t first = 0;
    make_opaque(first);
    const F* filter = a.filters + static_cast<int64_t>(f) * (Filter * Filter) + first;
    float tap[Filter * Filter];
    CONVX_UNROLL
    for (int i = 0; i < Filter * Filter; ++i) tap[i] = widen(load<F, 1>(filter + i).element[0]);
    const float bias = bias_of(a.bias, f);
    walk<Lanes, Columns, Rows>(a, reader, tap, bias, first_row, result_column, result, lane);
  }
}

template <int Lanes, class T, int Filter, bool Columns, int Rows>
CONVX_KERNEL(kThreads, (Filter <= 5 ? 4 : 2))
filter_reuse_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  const int lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint32_t unit = blockIdx.x * (kThreads / Lanes) + threadIdx.x / Lanes;
  if (unit >= a.units) return;  // whole warps, and there is no barrier
  const uint32_t above = a.segments.quotient(unit), image = a.chunks.quotient(above);
  const int segment = static_cast<int>(unit - above * a.segments.divisor);
  const int first_row = static_cast<int>(above - image * a.chunks.divisor) * a.chunk_rows;
  const int first_column = segment * Lanes - a.left, result_column = segment * Lanes + lane;
  // The last warp of a row keeps all its lanes, whose pixels the others need.
  const bool inside = first_column >= 0 && first_column + Lanes + Filter - 1 <= a.width &&
                      first_row - a.top >= 0 && first_row - a.top + a.chunk_rows + Filter - 1 <= a.height;
  const T* pixels = a.images + static_cast<int64_t>(image) * a.height * a.width;
  T* result = a.result + static_cast<int64_t>(image) * a.filters_count * a.out_height * a.out_width;
  take_turn();
  if (inside) {
    Reader<false, T, Filter> reader{pixels, a.height, a.width, a.border, 0, {}};
    reader.start(first_column + lane);
    run_bank<Lanes, Columns, Rows>(a, reader, first_row, result_column, result, lane);
  } else {
    Reader<true, T, Filter> reader{pixels, a.height, a.width, a.border, 0, {}};
    reader.start(first_column + lane);
    run_bank<Lanes, Columns, Rows>(a, reader, first_row, result_column, result, lane);
  }
}

}  // namespace convx::filter2d::reuse
