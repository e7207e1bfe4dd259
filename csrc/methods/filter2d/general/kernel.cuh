// Any filter, stride and dilation, one result column a lane, with each of the two reuses or without.
//
// Column reuse is by rotation: of the pixels at stride s that tap column j = s * q + r needs, lane t's is
// what lane t + q loaded for residue r, or, past the warp's end, lane t + q - Lanes for the warp's next
// columns. One load a residue and one shuffle a column. Row reuse: a lane makes Rows result rows, and reads
// every image row once for all of them.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/filter2d/pixel.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::general {

constexpr int kThreads = 128;

template <class T>
struct Arguments {
  const T* images;
  const FilterElement<T>* filters;
  const FilterElement<T>* bias;  // null without
  T* result;
  int height, width, out_height, out_width;
  int top, left;  // padding
  int stride_h, stride_w, dilation_h, dilation_w;
  int filter_height, filter_width;
  int filters_count;
  int groups_per_warp;  // row segments that lie side by side in a warp; 1 with column reuse
  FastDivide group_lanes, segments, row_tiles, divide_dilation_h;
  uint32_t units;
  Border border;
  Activation activation;
};

// Pixels of one image row for the lanes of a warp; a null row is zeros.
template <class T>
struct Row {
  const T* pixels;
  int width;
  Border border;
  CONVX_DEVICE Accumulator<T> at(int column) const {
    if (pixels == nullptr) return 0;
    const int inside = border_index<int>(column, width, border);
    return inside < 0 ? Accumulator<T>(0) : read_pixel(pixels + inside);
  }
};

// body(j, pixel of tap column j) for every tap column. tap0 is the lane's column of tap 0, lane 0's being
// first.
template <int Lanes, bool Columns, class T, class Body>
CONVX_DEVICE void for_each_column(const Arguments<T>& a, const Row<T>& row, int first, int lane,
                                  const Body& body) {
  if constexpr (!Columns) {
    const int tap0 = first + lane * a.stride_w;
    CONVX_NO_UNROLL
    for (int j = 0; j < a.filter_width; ++j) body(j, row.at(tap0 + j * a.dilation_w));
  } else {
    const int reach = (a.filter_width - 1) * a.dilation_w;  // of the last tap beyond the first
    CONVX_NO_UNROLL
    for (int residue = 0; residue < a.stride_w && residue <= reach; ++residue) {
      int held = -1;  // which Lanes columns of the residue the warp holds
      Accumulator<T> own = 0, next = 0;
      int quotient = 0, rest = 0;  // of tap j's offset by the stride
      CONVX_NO_UNROLL
      for (int j = 0; j < a.filter_width; ++j) {
        if (rest == residue) {
          const int turn = quotient % Lanes;
          if (quotient / Lanes != held) {
            held = quotient / Lanes;
            const int column = first + (held * Lanes + lane) * a.stride_w + residue;
            own = row.at(column);
            next = row.at(column + Lanes * a.stride_w);
          }
          body(j, shuffle<Lanes>(lane >= turn ? own : next, (lane + turn) % Lanes));
        }
        rest += a.dilation_w;
        while (rest >= a.stride_w) {
          rest -= a.stride_w;
          ++quotient;
        }
      }
    }
  }
}

template <int Lanes, class T, bool Columns, int Rows>
CONVX_KERNEL(kThreads, 4)
filter_general_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using A = Accumulator<T>;
  using F = FilterElement<T>;
  const int lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint32_t warp = blockIdx.x * (kThreads / Lanes) + threadIdx.x / Lanes;
  const int group = static_cast<int>(a.group_lanes.quotient(lane));
  const int within = lane - group * static_cast<int>(a.group_lanes.divisor);
  uint32_t unit = warp * a.groups_per_warp + group;
  const bool live = group < a.groups_per_warp && unit < a.units;
  if (!live) unit = a.units - 1;
  const uint32_t above = a.segments.quotient(unit), image = a.row_tiles.quotient(above);
  const int segment = static_cast<int>(unit - above * a.segments.divisor);
  const int result_row = static_cast<int>(above - image * a.row_tiles.divisor) * Rows;
  const int segment_column = segment * static_cast<int>(a.group_lanes.divisor);
  const int result_column = segment_column + within;
  const bool makes = live && result_column < a.out_width;
  // Lane 0's tap 0 of the lane's own group.
  const int first = (segment_column + within - lane) * a.stride_w - a.left;
  const T* pixels = a.images + static_cast<int64_t>(image) * a.height * a.width;

  const int taps = a.filter_height * a.filter_width;
  const int64_t plane = static_cast<int64_t>(a.out_height) * a.out_width;
  T* result = a.result + static_cast<int64_t>(image) * a.filters_count * plane;
  const F* filter = a.filters;
  if constexpr (sizeof(T) == 8) {
    // AMD GPUs need their scalar registers for the activations' constants.
    keep_per_lane(pixels);
    keep_per_lane(result);
    keep_per_lane(filter);
  }
  take_turn();
  // Offsets of image rows from the first tap's of the first result row.
  const int last = (Rows - 1) * a.stride_h + (a.filter_height - 1) * a.dilation_h;
  CONVX_NO_UNROLL
  for (int f = 0; f < a.filters_count; ++f, result += plane, filter += taps) {
    A sum[Rows];
    const A bias = bias_of(a.bias, f);
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) sum[o] = bias;
    CONVX_NO_UNROLL
    for (int i = 0; i <= last; i += Rows == 1 ? a.dilation_h : 1) {
      uint32_t step = static_cast<uint32_t>(i);
      if constexpr (sizeof(T) == 8) make_opaque(step);  // nor are those of the taps' rows
      int tap_row[Rows];  // of the image row for result row o, -1 where there is none
      bool needed = false;
      CONVX_UNROLL
      for (int o = 0; o < Rows; ++o) {
        const int offset = static_cast<int>(step) - o * a.stride_h;
        const int r = offset < 0 ? 0 : static_cast<int>(a.divide_dilation_h.quotient(offset));
        tap_row[o] = offset >= 0 && r * a.dilation_h == offset && r < a.filter_height ? r : -1;
        needed = needed || tap_row[o] >= 0;
      }
      if (!needed) continue;
      const int image_row = border_index<int>(result_row * a.stride_h - a.top + i, a.height, a.border);
      const Row<T> row{image_row < 0 ? nullptr : pixels + static_cast<int64_t>(image_row) * a.width, a.width,
                       a.border};
      for_each_column<Lanes, Columns>(a, row, first, lane, [&](int j, A pixel) {
        CONVX_UNROLL
        for (int o = 0; o < Rows; ++o) {
          if (tap_row[o] < 0) continue;
          sum[o] = multiply_add(
              pixel, A(widen(load<F, 1>(filter + (tap_row[o] * a.filter_width + j)).element[0])), sum[o]);
        }
      });
    }
    uint32_t activation = static_cast<uint32_t>(a.activation);
    if constexpr (sizeof(T) == 8) make_opaque(activation);  // its conditions are not kept across the taps
    activate<T>(sum, static_cast<Activation>(activation));
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) {
      if (!makes || result_row + o >= a.out_height) continue;
      write_pixel<T>(result + (static_cast<int64_t>(result_row + o) * a.out_width + result_column), sum[o]);
    }
  }
}

}  // namespace convx::filter2d::general
