// The register tile: rows of single values times vectors, summed over a depth. Which of the two are filters
// and which are pixels is the caller's affair.
#pragma once
#include <utility>

#include "methods/epilogue_cpu.h"
#include "methods/pointwise/cpu/job.h"
#include "platform/cpu/rows.h"
#include "platform/cpu/transpose.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace products {

constexpr CpuIsa kIsa = CONVX_SIMD_BYTES == 64   ? CpuIsa::avx512
                        : CONVX_SIMD_BYTES == 32 ? CpuIsa::avx2
                                                 : CpuIsa::baseline;
constexpr int64_t kMostTile = 32;  // vectors of sums in any tile, at most

// Neighbours: at every depth the rows' values are neighbours, and those of the next are step elements on.
// Otherwise a row's values of all depths are neighbours, and rows are step elements apart.
template <class A>
struct Rows {
  const A* values;
  int64_t step;
};
template <class A>
struct Vectors {
  const A* values;
  int64_t step;  // from one depth to the next
};

template <class A, int Count, int Width, bool Neighbours>
struct Step;

template <class A, int Count, int Width>
struct Step<A, Count, Width, true> {
  const A* values;
  int64_t step;
  CONVX_INLINE explicit Step(const Rows<A>& rows) : values(rows.values), step(rows.step) {}
  CONVX_INLINE A operator[](int row) const { return values[row]; }
  CONVX_INLINE void advance() { values += step; }
};

// Three rows to a pointer: x86 addresses have an index times 1, 2, 4 or 8.
template <class A, int Count, int Width>
struct Step<A, Count, Width, false> {
  const A* values[(Count + 2) / 3];
  int64_t step;
  CONVX_INLINE explicit Step(const Rows<A>& rows) : step(rows.step) {
    CONVX_UNROLLED
    for (int i = 0; i < (Count + 2) / 3; ++i) values[i] = rows.values + 3 * i * rows.step;
  }
  CONVX_INLINE A operator[](int row) const { return values[row / 3][row % 3 * step]; }
  CONVX_INLINE void advance() {
    CONVX_UNROLLED
    for (int i = 0; i < (Count + 2) / 3; ++i) ++values[i];
  }
};

// Where a tile's sums go: target[row * row_step + vector * lanes + lane]. Finished ones have the bias added,
// of the rows where their values are neighbours and else of the vectors, and are clamped.
template <class A>
struct Target {
  A* values;
  int64_t row_step;
  bool add = false;  // to what is there
  bool finish = false;
  const A* bias = nullptr;
  A low = A(0), high = A(0);
};

// The sums of the products of `depth` pairs, `apart` of them summed before they join the total: one long
// sum's rounding error grows with its length.
template <class A, int Count, int Width, bool Neighbours>
__attribute__((noinline)) void add_products(const Rows<A>& rows, const Vectors<A>& vectors, int64_t depth,
                                            int64_t apart, const Target<A>& target) {
  constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  Step<A, Count, Width, Neighbours> row(rows);
  const A* values = vectors.values;
  const int64_t vector_step = vectors.step;
  bool add = target.add;
  do {
    const int64_t some = minimum(depth, apart);
    V sum[Count][Width];
    CONVX_UNROLLED
    for (int r = 0; r < Count; ++r) {
      CONVX_UNROLLED
      for (int v = 0; v < Width; ++v) sum[r][v] = V{};
    }
    for (int64_t d = 0; d < some; ++d, values += vector_step, row.advance()) {
      V value[Width];
      CONVX_UNROLLED
      for (int v = 0; v < Width; ++v) {
        value[v] = load<L>(values + v * L);
        keep(value[v]);
      }
      CONVX_UNROLLED
      for (int r = 0; r < Count; ++r) {
        const V factor = broadcast<V>(row[r]);
        CONVX_UNROLLED
        for (int v = 0; v < Width; ++v) sum[r][v] += value[v] * factor;
      }
    }
    depth -= some;
    A* to = target.values;
    if (add) {
      CONVX_UNROLLED
      for (int r = 0; r < Count; ++r, to += target.row_step) {
        CONVX_UNROLLED
        for (int v = 0; v < Width; ++v) sum[r][v] += load<L>(to + v * L);
      }
      to = target.values;
    }
    if (target.finish && depth == 0) {
      const V low = broadcast<V>(target.low), high = broadcast<V>(target.high);
      CONVX_UNROLLED
      for (int r = 0; r < Count; ++r, to += target.row_step) {
        CONVX_UNROLLED
        for (int v = 0; v < Width; ++v) {
          V value = sum[r][v];
          value += Neighbours ? broadcast<V>(target.bias[r]) : load<L>(target.bias + v * L);
          value = value < low ? low : value;  // NaN stays NaN
          store<L>(to + v * L, value > high ? high : value);
        }
      }
    } else {
      CONVX_UNROLLED
      for (int r = 0; r < Count; ++r, to += target.row_step) {
        CONVX_UNROLLED
        for (int v = 0; v < Width; ++v) store<L>(to + v * L, sum[r][v]);
      }
    }
    add = true;
  } while (depth > 0);
}

template <class A>
using AddProducts = void (*)(const Rows<A>&, const Vectors<A>&, int64_t, int64_t, const Target<A>&);

template <class A, int Width, bool Neighbours, int... Less>
AddProducts<A> of_rows(int64_t rows, std::integer_sequence<int, Less...>) {
  static constexpr AddProducts<A> kTable[] = {add_products<A, Less + 1, Width, Neighbours>...};
  return kTable[rows - 1];
}

// The kernel of so many rows, up to pointwise::most_rows, of `width` vectors.
template <class A, bool Neighbours>
AddProducts<A> add_products_of(int64_t rows, int64_t width) {
  switch (width) {
    case 1:
      return of_rows<A, 1, Neighbours>(rows,
                                       std::make_integer_sequence<int, pointwise::most_rows(kIsa, 1)>());
    case 2:
      return of_rows<A, 2, Neighbours>(rows,
                                       std::make_integer_sequence<int, pointwise::most_rows(kIsa, 2)>());
    case 3:
      return of_rows<A, 3, Neighbours>(rows,
                                       std::make_integer_sequence<int, pointwise::most_rows(kIsa, 3)>());
    default:
      return of_rows<A, 4, Neighbours>(rows,
                                       std::make_integer_sequence<int, pointwise::most_rows(kIsa, 4)>());
  }
}

}  // namespace products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
