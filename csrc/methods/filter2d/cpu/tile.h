// The register tile: some rows by two vectors of results, from pointers to the source rows that they meet.
#pragma once
#include "methods/epilogue_cpu.h"
#include "methods/filter2d/cpu/job.h"
#include "platform/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

constexpr int kVectors = 2;   // of columns in a tile: two hide the latency of a multiply-add together
constexpr int kTileRows = 4;  // with row reuse

// Elements Offset to Offset + L of the 2 L elements of (low, high).
template <int Offset, class V, int... Lanes>
CONVX_INLINE V window(V low, V high, std::integer_sequence<int, Lanes...>) {
  return __builtin_shufflevector(low, high, (Offset + Lanes)...);
}

// Holds every sum in its register there: GCC 12 would move all loads of a tile before its first multiply-add,
// and the multiply-adds into the branches that store their sums, and so run out of registers.
template <class V, int Rows>
CONVX_INLINE void keep_all(V (&sum)[Rows][kVectors]) {
  CONVX_UNROLLED
  for (int h = 0; h < Rows; ++h) {
    CONVX_UNROLLED
    for (int v = 0; v < kVectors; ++v) keep(sum[h][v]);
  }
}

// A square filter without dilation, unrolled.
template <class Element, int Filter, int RowCount, bool ShiftsColumns>
struct FixedTile {
  using A = Element;
  static constexpr int kRows = RowCount;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  // Vectors of a source row that are loaded; with shifts they cover the last column's reach.
  static constexpr int kLoaded = ShiftsColumns ? kVectors + (Filter - 2 + L) / L : kVectors;

  explicit FixedTile(const FilterProblem&) {}

  int64_t source_rows() const { return kRows + Filter - 1; }
  // Elements that are read from a row's pointer on for the results of one tile.
  int64_t source_columns() const { return ShiftsColumns ? kLoaded * L : kVectors * L + Filter - 1; }

  template <int Column>
  static CONVX_INLINE V shifted(const V (&x)[kLoaded], int vector) {
    constexpr int kWhole = Column / L, kOffset = Column % L;
    if constexpr (kOffset == 0) {
      return x[vector + kWhole];
    } else {
      return window<kOffset>(x[vector + kWhole], x[vector + kWhole + 1],
                             std::make_integer_sequence<int, L>());
    }
  }

  // Adds source row i, column by column of the filter, to every result row that it touches. x holds the row
  // where columns are shifted; else each is loaded.
  template <int Column = 0>
  static CONVX_INLINE void add_columns(const A* source, const V (&x)[kLoaded], const A* weight, int i,
                                       V (&sum)[kRows][kVectors]) {
    if constexpr (Column < Filter) {
      CONVX_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        V value;
        if constexpr (ShiftsColumns) {
          value = shifted<Column>(x, v);
        } else {
          value = load<L>(source + Column + v * L);
        }
        keep(value);
        CONVX_UNROLLED
        for (int h = 0; h < kRows; ++h) {
          const int f = i - h;
          if (f < 0 || f >= Filter) continue;
          sum[h][v] += value * weight[f * Filter + Column];
        }
      }
      add_columns<Column + 1>(source, x, weight, i, sum);
    }
  }

  CONVX_INLINE void operator()(const A* const* rows, int64_t column, const A* weight,
                               V (&sum)[kRows][kVectors]) const {
    CONVX_UNROLLED
    for (int i = 0; i < kRows + Filter - 1; ++i) {
      const A* source = rows[i] + column;
      V x[kLoaded];
      if constexpr (ShiftsColumns) {
        CONVX_UNROLLED
        for (int v = 0; v < kLoaded; ++v) {
          x[v] = load<L>(source + v * L);
          keep(x[v]);
        }
      }
      add_columns(source, x, weight, i, sum);
      keep_all(sum);
    }
  }
};

// Any filter and dilation.
template <class Element, int RowCount>
struct GeneralTile {
  using A = Element;
  static constexpr int kRows = RowCount;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  const int64_t height, width, dilation_h, dilation_w;

  explicit GeneralTile(const FilterProblem& problem)
      : height(problem.filter_height),
        width(problem.filter_width),
        dilation_h(problem.dilation_h),
        dilation_w(problem.dilation_w) {}

  int64_t source_rows() const { return kRows + (height - 1) * dilation_h; }
  int64_t source_columns() const { return kVectors * L + (width - 1) * dilation_w; }

  CONVX_INLINE void operator()(const A* const* rows, int64_t column, const A* weight,
                               V (&sum)[kRows][kVectors]) const {
    for (int64_t i = 0; i < source_rows(); ++i) {
      // The filter row by which source row i meets each result row, where it does.
      const A* weights[kRows];
      bool meets_all = true;
      for (int h = 0; h < kRows; ++h) {
        const int64_t distance = i - h;
        const bool meets = distance >= 0 && distance % dilation_h == 0 && distance / dilation_h < height;
        weights[h] = meets ? weight + distance / dilation_h * width : nullptr;
        meets_all = meets_all && meets;
      }
      const A* source = rows[i] + column;
      if (meets_all) {
        for (int64_t s = 0; s < width; ++s) {
          CONVX_UNROLLED
          for (int v = 0; v < kVectors; ++v) {
            V x = load<L>(source + s * dilation_w + v * L);
            keep(x);
            CONVX_UNROLLED
            for (int h = 0; h < kRows; ++h) sum[h][v] += x * weights[h][s];
          }
        }
        continue;
      }
      CONVX_UNROLLED
      for (int h = 0; h < kRows; ++h) {
        if (weights[h] == nullptr) continue;
        for (int64_t s = 0; s < width; ++s) {
          CONVX_UNROLLED
          for (int v = 0; v < kVectors; ++v) {
            sum[h][v] += load<L>(source + s * dilation_w + v * L) * weights[h][s];
          }
        }
      }
    }
  }
};

}  // namespace image_filter
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
