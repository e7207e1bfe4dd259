// Depthwise filters of one vector of channels: rows of [column][lane], which begin with their padding.
#pragma once
#include "methods/panels/product.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace blocks {

using namespace panels;

// Rows x Columns results. Each value is loaded once for all rows that it meets.
template <int Filter, int Stride, int Rows, int Columns>
CONVX_INLINE void filter_tile(const float* const* rows, int64_t place, const float* filters, V bias,
                              float* results, int64_t row_step, const Ends& ends) {
  constexpr bool kKeepsRows = kRegisters < 32 && Rows == 1;
  V sum[Rows][Columns];
  CONVX_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    CONVX_UNROLLED
    for (int c = 0; c < Columns; ++c) sum[r][c] = bias;
  }
  CONVX_UNROLLED
  for (int y = 0; y < Stride * (Rows - 1) + Filter; ++y) {
    const float* const from = rows[y] + place;
    // 16 registers have room for a tap row's filters, 32 for all that a tile has.
    V row_filters[Filter];
    if constexpr (kKeepsRows) {
      CONVX_UNROLLED
      for (int tap = 0; tap < Filter; ++tap) {
        row_filters[tap] = load<L>(filters + (y * Filter + tap) * L);
        keep(row_filters[tap]);
      }
    }
    CONVX_UNROLLED
    for (int x = 0; x < Stride * (Columns - 1) + Filter; ++x) {
      const V value = load<L>(from + x * L);
      CONVX_UNROLLED
      for (int r = 0; r < Rows; ++r) {
        const int tap_y = y - Stride * r;
        if (tap_y < 0 || tap_y >= Filter) continue;
        CONVX_UNROLLED
        for (int tap = 0; tap < Filter; ++tap) {
          const int column = x - tap;
          if (column < 0 || column % Stride != 0 || column / Stride >= Columns) continue;
          const V by = kKeepsRows ? row_filters[tap] : load<L>(filters + (tap_y * Filter + tap) * L);
          sum[r][column / Stride] += value * by;
        }
      }
    }
  }
  CONVX_UNROLLED
  for (int r = 0; r < Rows; ++r) {
    CONVX_UNROLLED
    for (int c = 0; c < Columns; ++c) store<L>(results + r * row_step + c * L, ends.clamped(sum[r][c]));
  }
}

template <int Filter, int Stride, int Rows>
__attribute__((noinline)) void filter_rows(const float* const* rows, int64_t width, const float* filters,
                                           V bias, float* results, int64_t row_step, const Ends& ends) {
  int64_t column = 0;
  const auto some = [&](auto count) {
    constexpr int kColumns = decltype(count)::value;
    for (; column + kColumns <= width; column += kColumns) {
      filter_tile<Filter, Stride, Rows, kColumns>(rows, column * Stride * L, filters, bias,
                                                  results + column * L, row_step, ends);
    }
  };
  some(std::integral_constant<int, 7>());
  some(std::integral_constant<int, 4>());
  some(std::integral_constant<int, 1>());
  if (ends.clamps) return;
  for (int row = 0; row < Rows; ++row) activate_some(results + row * row_step, L, width, L, ends.activation);
}

// `count` rows of results; rows: those that the filter meets, from the first result's on.
template <int Filter, int Stride>
void filter_strip(const float* const* rows, int64_t count, int64_t width, const float* filters,
                  const float* bias, float* results, int64_t row_step, const Ends& ends) {
  constexpr int kRows = kRegisters >= 32 && Filter == 3 ? 2 : 1;
  const V first = load<L>(bias);
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    filter_rows<Filter, Stride, kRows>(rows + row * Stride, width, filters, first, results + row * row_step,
                                       row_step, ends);
  }
  for (; row < count; ++row) {
    filter_rows<Filter, Stride, 1>(rows + row * Stride, width, filters, first, results + row * row_step,
                                   row_step, ends);
  }
}

// The same where filters are not finite, whose products with the padding's zeros would be NaN: by results, of
// the taps that meet rows and columns. rows: null outside.
inline void filter_inside(const float* const* rows, int64_t filter, int64_t stride, int64_t count,
                          int64_t width, int64_t from_width, const float* filters, const float* bias,
                          float* results, const Ends& ends) {
  const int64_t padding = filter / 2;
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t column = 0; column < width; ++column, results += L) {
      V sum = load<L>(bias);
      for (int64_t tap = 0; tap < filter * filter; ++tap) {
        const float* const from = rows[row * stride + tap / filter];
        const int64_t place = column * stride + tap % filter;  // behind the padding
        if (from == nullptr || place < padding || place >= from_width + padding) continue;
        sum += load<L>(from + place * L) * load<L>(filters + tap * L);
      }
      store<L>(results, ends.clamped(sum));
      if (!ends.clamps) activate_some(results, L, 1, L, ends.activation);
    }
  }
}

}  // namespace blocks
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
