// NCHW forward and input gradient of the common filters. Lanes run along columns. A band of a plane's rows is
// packed with zeros at its edges (columns dealt out by their residue for stride 2), so that the inner loop
// has no edge cases; each packed row is then loaded once per tap column and meets every target row that it
// touches.
#pragma once
#include "methods/depthwise/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

template <class T, int Filter, int Stride, int L>
struct PlaneRows {
  using A = Accumulator<T>;
  using V = Simd<A, L>;
  static constexpr int kTile = 4;  // target rows in registers

  const Job& job;
  int64_t target_channels = job.channels * job.multiplier;
  int64_t column_blocks = ceil_divide(job.target_width, L);
  int64_t pitch = round_up(column_blocks * L + (Filter - 1) / Stride, kLanes<A>);
  int64_t row_elements = pitch * Stride;
  int64_t band_rows = band_height();
  int64_t bands = ceil_divide(job.target_height, band_rows);

  int64_t band_height() const {
    const int64_t fitting = kBandBytes / (row_elements * static_cast<int64_t>(sizeof(A))) - (Filter - Stride);
    return minimum(round_up(maximum(fitting / Stride, 2 * kTile), kTile), job.target_height);
  }
  int64_t tasks() const { return job.batch * target_channels * bands; }

  // Rows target rows from `row`, one vector of columns from `column`.
  template <int Rows>
  CONVX_INLINE void tile(const A* packed, const A* weight, int64_t row, int64_t column,
                         V (&sum)[Rows]) const {
    CONVX_UNROLLED
    for (int h = 0; h < Rows; ++h) sum[h] = V{};
    const A* source = packed + row * Stride * row_elements + column;
    CONVX_UNROLLED
    for (int i = 0; i < (Rows - 1) * Stride + Filter; ++i) {
      CONVX_UNROLLED
      for (int g = 0; g < Filter; ++g) {
        V x = load<L>(source + i * row_elements + (g % Stride) * pitch + g / Stride);
        keep(x);
        CONVX_UNROLLED
        for (int h = 0; h < Rows; ++h) {
          const int f = i - h * Stride;
          if (f < 0 || f >= Filter) continue;
          sum[h] += x * weight[f * Filter + g];
        }
      }
    }
  }

  template <int Rows>
  CONVX_INLINE void rows(const A* packed, const A* weight, const ChannelEpilogue<T>& epilogue, int64_t row,
                         T* target, const T* target_end) const {
    V sum[Rows];
    for (int64_t block = 0; block < column_blocks; ++block) {
      // The last vector of a row overlaps the one before, or, alone in its row, runs over into the next row,
      // which is stored later.
      const int64_t column = maximum(minimum(block * L, job.target_width - L), 0);
      tile<Rows>(packed, weight, row, column, sum);
      CONVX_UNROLLED
      for (int h = 0; h < Rows; ++h) {
        T* address = target + (row + h) * job.target_width + column;
        if (address + L <= target_end) {
          store<L>(address, epilogue.template operator()<L>(sum[h], address));
        } else {
          const int64_t count = job.target_width;
          store_some<L>(address, epilogue.template operator()<L>(sum[h], address, count), count);
        }
      }
    }
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t source_rows = (band_rows - 1) * Stride + Filter;
    Scratch scratch((source_rows * row_elements + 2 * kLanes<A>)*static_cast<int64_t>(sizeof(A)));
    A* packed = scratch.as<A>();
    const int64_t plane = job.target_height * job.target_width;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image_channel = task / bands;
      const int64_t channel = image_channel % target_channels;
      const int64_t source_plane = image_channel / target_channels * job.channels + channel / job.multiplier;
      const int64_t band_begin = task % bands * band_rows;
      const int64_t band_end = minimum(band_begin + band_rows, job.target_height);
      const int64_t height = band_end - band_begin;
      const T* source =
          static_cast<const T*>(job.source) + source_plane * job.source_height * job.source_width;
      for (int64_t i = 0; i < (height - 1) * Stride + Filter; ++i) {
        const int64_t position = band_begin * Stride - job.pad_top + i;
        const bool exists = position >= 0 && position < job.source_height;
        const Line<T> line{exists ? source + position * job.source_width : nullptr, job.source_width, 1};
        pack_row_strided(line, -job.pad_left, packed + i * row_elements, pitch, Stride);
      }
      A weight[Filter * Filter];
      const T* weights = static_cast<const T*>(job.weight) + channel * Filter * Filter;
      for (int t = 0; t < Filter * Filter; ++t) {
        weight[t] = widen(weights[job.flipped ? Filter * Filter - 1 - t : t]);
      }
      const ChannelEpilogue<T> epilogue(job.epilogue, channel);
      T* target = static_cast<T*>(job.result) + image_channel * plane + band_begin * job.target_width;
      const T* target_end = target + height * job.target_width;
      int64_t row = 0;
      if (height >= kTile) {
        for (; row < height; row += kTile) {
          rows<kTile>(packed, weight, epilogue, minimum(row, height - kTile), target, target_end);
        }
      }
      for (; row < height; ++row) rows<1>(packed, weight, epilogue, row, target, target_end);
    }
  }
};

// The transposed sweep with stride 2: a packed source row is loaded once per column step and meets the even
// and the odd target columns of every target row that it touches; the two are zipped together at the end.
template <class T, int Filter, int L>
struct PlaneRowsTransposed {
  using A = Accumulator<T>;
  using V = Simd<A, L>;
  static constexpr int kTile = 4;                  // target rows in registers
  static constexpr int kReach = (Filter - 1) / 2;  // source positions before a target's own

  const Job& job;
  // In padded positions u = target + pad; q = u / 2 is the source position of u.
  int64_t first_q = job.pad_left / 2;
  int64_t column_blocks = ceil_divide((job.pad_left + job.target_width - 1) / 2 - first_q + 1, L);
  int64_t pitch = round_up(column_blocks * L + kReach, kLanes<A>);
  int64_t first_row = job.pad_top / 2 * 2;  // padded position of the first tile
  int64_t padded_rows = round_up(job.pad_top + job.target_height - first_row, kTile);
  int64_t band_rows = minimum(padded_rows, round_up(maximum(kBandBytes / (pitch * 4) * 2, 4 * kTile), kTile));
  int64_t bands = ceil_divide(padded_rows, band_rows);

  int64_t tasks() const { return job.batch * job.channels * bands; }

  CONVX_INLINE void tile(const A* source, const A* weight, V (&sum)[kTile][2]) const {
    CONVX_UNROLLED
    for (int h = 0; h < kTile; ++h) sum[h][0] = sum[h][1] = V{};
    CONVX_UNROLLED
    for (int i = 0; i < kReach + kTile / 2; ++i) {
      CONVX_UNROLLED
      for (int k = 0; k <= kReach; ++k) {
        V x = load<L>(source + i * pitch + kReach - k);
        keep(x);
        CONVX_UNROLLED
        for (int h = 0; h < kTile; ++h) {
          const int f = h - (i - kReach) * 2;
          if (f < 0 || f >= Filter) continue;
          sum[h][0] += x * weight[f * Filter + 2 * k];
          if (2 * k + 1 < Filter) sum[h][1] += x * weight[f * Filter + 2 * k + 1];
        }
      }
    }
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t source_rows = band_rows / 2 + kReach;
    const int64_t row_elements = 2 * column_blocks * L + kLanes<A>;
    Scratch scratch((source_rows * pitch + 2 * kLanes<A> + kTile * row_elements) *
                    static_cast<int64_t>(sizeof(A)));
    A* finished = scratch.as<A>();
    A* packed = finished + kTile * row_elements;
    const ChannelEpilogue<T> epilogue(job.epilogue, 0);  // of a gradient: none
    for (int64_t task = begin; task < end; ++task) {
      const int64_t plane = task / bands;
      const int64_t band_begin = first_row + task % bands * band_rows;
      const int64_t band_end = minimum(band_begin + band_rows, first_row + padded_rows);
      const T* source = static_cast<const T*>(job.source) + plane * job.source_height * job.source_width;
      for (int64_t i = 0; i < (band_end - band_begin) / 2 + kReach; ++i) {
        const int64_t position = band_begin / 2 - kReach + i;
        const bool exists = position >= 0 && position < job.source_height;
        const Line<T> line{exists ? source + position * job.source_width : nullptr, job.source_width, 1};
        pack_row(line, first_q - kReach, packed + i * pitch, pitch);
      }
      A weight[Filter * Filter];
      const T* weights = static_cast<const T*>(job.weight) + plane % job.channels * Filter * Filter;
      for (int t = 0; t < Filter * Filter; ++t) weight[t] = widen(weights[t]);
      T* target = static_cast<T*>(job.result) + plane * job.target_height * job.target_width;
      for (int64_t row = band_begin; row < band_end; row += kTile) {
        for (int64_t block = 0; block < column_blocks; ++block) {
          V sum[kTile][2];
          tile(packed + (row - band_begin) / 2 * pitch + block * L, weight, sum);
          CONVX_UNROLLED
          for (int h = 0; h < kTile; ++h) {
            A* pair = finished + h * row_elements + 2 * block * L;
            store<L>(pair, zip_low(sum[h][0], sum[h][1]));
            store<L>(pair + L, zip_high(sum[h][0], sum[h][1]));
          }
        }
        for (int h = 0; h < kTile; ++h) {
          const int64_t target_row = row + h - job.pad_top;
          if (target_row < 0 || target_row >= job.target_height) continue;
          store_row<T>(finished + h * row_elements + job.pad_left - 2 * first_q,
                       target + target_row * job.target_width, job.target_width, 1, epilogue);
        }
      }
    }
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
