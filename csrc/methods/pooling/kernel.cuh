// Pooling of planes. A thread has a value of a plane, in channels_last some neighbouring channels of a pixel,
// and makes results of a column, one below the other: what a row of the input gives to several of them is
// read once, the row reuse of Lu, Zhang and Wang. Neighbouring threads have neighbouring columns or channels,
// whose common values come from the first-level cache.
#pragma once
#include "platform/gpu/clamp.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/vector.h"
#include "platform/gpu/warp.h"
#include "problem/pooling_problem.h"

namespace convx::pooling {

constexpr int kThreads = 256;
// Results of a thread. Of four, 64 warps' lines of float32 at stride 2 are more than the cache has. Where the
// filter is not known rows are not reused, and more threads hide more of the latency.
constexpr int rows_of_thread(int filter) {
  return filter == 0 ? 1 : 2;
}

struct Shape {
  FastDivide vectors, columns, runs;  // of a pixel, of a row of results, of a plane's rows of them
  uint32_t threads;
  int32_t height, width, rows;       // of the input, and of the results
  int32_t plane, row, column;        // elements from one of the input's to the next; plane: of an image too
  int32_t result_plane, result_row;  // the same of results
  int32_t filter_height, filter_width, stride_down, stride_across, padding_down, padding_across;
  int32_t dilation_down, dilation_across;
  int32_t divisor;  // 0: the values' count
  bool counts_padding;
};

template <Pooling Kind>
CONVX_DEVICE float added(float sum, float value) {
  return Kind == Pooling::average ? sum + value : greater_keeping_nan(sum, value);
}

template <Pooling Kind>
CONVX_DEVICE float nothing() {
  return Kind == Pooling::average ? 0.0f : bits_to_float(0xff800000u);  // minus infinity
}

template <class T, int N>
CONVX_DEVICE void store_narrowed(T* to, const float (&values)[N]) {
  Vector<T, N> result;
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) result.element[i] = narrow<T>(values[i]);
  store<T, N>(to, result);
}

// The number of `filter` places from the first on that lie in [begin, end).
CONVX_DEVICE int32_t places_between(int32_t first, int32_t filter, int32_t begin, int32_t end) {
  const int32_t from = first > begin ? first : begin, to = first + filter < end ? first + filter : end;
  return to - from;
}

struct Places {
  int32_t from, end;
};
// Of the input, those of a window that lie within it.
CONVX_DEVICE Places places_within(int32_t first, int32_t filter, int32_t dilation, int32_t extent) {
  const int32_t end = first + filter * dilation;
  while (first < 0) first += dilation;
  return {first, end < extent ? end : extent};
}

// The greatest values, whatever the filter. row, column: of a result.
template <class T, int N>
CONVX_DEVICE void pool_any(const T* plane, T* to, int32_t row, int32_t column, const Shape& s) {
  constexpr Pooling kMax = Pooling::max;
  float greatest[N];
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) greatest[i] = nothing<kMax>();
  const Places down =
      places_within(row * s.stride_down - s.padding_down, s.filter_height, s.dilation_down, s.height);
  const Places across =
      places_within(column * s.stride_across - s.padding_across, s.filter_width, s.dilation_across, s.width);
  for (int32_t y = down.from; y < down.end; y += s.dilation_down) {
    const T* const from = plane + y * s.row;
    for (int32_t x = across.from; x < across.end; x += s.dilation_across) {
      const auto values = load<T, N>(from + x * s.column);
      CONVX_UNROLL
      for (int i = 0; i < N; ++i) greatest[i] = added<kMax>(greatest[i], widen(values.element[i]));
    }
  }
  store_narrowed<T, N>(to, greatest);
}

// What the sums of a result are divided by: squares have no dilation.
CONVX_DEVICE float divisor_of(int32_t top, int32_t left, int32_t filter, const Shape& s) {
  if (s.divisor != 0) return static_cast<float>(s.divisor);
  // Of the padding too, but for what lies behind it: a last window may reach there.
  const int32_t down = s.counts_padding ? s.padding_down : 0,
                across = s.counts_padding ? s.padding_across : 0;
  return static_cast<float>(places_between(top, filter, -down, s.height + down) *
                            places_between(left, filter, -across, s.width + across));
}

CONVX_DEVICE bool is_within(int32_t place, int32_t extent) {
  return place >= 0 && place < extent;
}
// The place itself where there is one, else the nearest.
CONVX_DEVICE int32_t within(int32_t place, int32_t extent) {
  return place < 0 ? 0 : place < extent ? place : extent - 1;
}

// Of squares of Filter, a thread's results from this row on. Values are added in the order of torch's sums.
// Every load is made, for what depends on a condition waits for it: in the place of what lies outside, the
// greatest values have one of the same window once more.
template <class T, int N, Pooling Kind, int Filter, int Stride>
CONVX_DEVICE void pool_squares(const T* plane, T* to, int32_t row, int32_t column, const Shape& s) {
  constexpr int kRows = rows_of_thread(Filter), kInputRows = (kRows - 1) * Stride + Filter;
  const int32_t top = row * Stride - s.padding_down, left = column * Stride - s.padding_across;
  int32_t place[Filter];
  CONVX_UNROLL
  for (int x = 0; x < Filter; ++x) place[x] = within(left + x, s.width) * s.column;
  Vector<T, N> loaded[kInputRows][Filter];
  CONVX_UNROLL
  for (int y = 0; y < kInputRows; ++y) {
    const T* const from = plane + within(top + y, s.height) * s.row;
    CONVX_UNROLL
    for (int x = 0; x < Filter; ++x) loaded[y][x] = load<T, N>(from + place[x]);
  }
  CONVX_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (row + r >= s.rows) break;
    float result[N];
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) result[i] = nothing<Kind>();
    CONVX_UNROLL
    for (int y = r * Stride; y < r * Stride + Filter; ++y) {
      CONVX_UNROLL
      for (int x = 0; x < Filter; ++x) {
        const bool is_added =
            Kind == Pooling::max || (is_within(top + y, s.height) && is_within(left + x, s.width));
        CONVX_UNROLL
        for (int i = 0; i < N; ++i) {
          float value = widen(loaded[y][x].element[i]);
          keep_per_lane(value);  // or which of all are NaN is asked at once, and fills the scalars
          result[i] = added<Kind>(result[i], is_added ? value : 0.0f);
        }
      }
    }
    if constexpr (Kind == Pooling::average) {
      const float by = divisor_of(top + r * Stride, left, Filter, s);
      CONVX_UNROLL
      for (int i = 0; i < N; ++i) result[i] /= by;
    }
    store_narrowed<T, N>(to + r * s.result_row, result);
  }
}

// Filter: 0 for any.
template <class T, int N, Pooling Kind, int Filter, int Stride>
CONVX_KERNEL(kThreads, 1)
pool_kernel(const T* input, T* result, Shape s) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  take_turn();
  if (thread >= s.threads) return;
  const uint32_t pixel = s.vectors.quotient(thread), vector = thread - pixel * s.vectors.divisor;
  const uint32_t run = s.columns.quotient(pixel), column = pixel - run * s.columns.divisor;
  const uint32_t plane = s.runs.quotient(run);
  const auto row = static_cast<int32_t>((run - plane * s.runs.divisor) * rows_of_thread(Filter));
  const auto at = static_cast<int32_t>(column);
  const T* const from = input + plane * static_cast<uint32_t>(s.plane) + vector * N;
  T* const to = result + plane * static_cast<uint32_t>(s.result_plane) + row * s.result_row + at * s.column +
                vector * N;
  if constexpr (Filter != 0) {
    pool_squares<T, N, Kind, Filter, Stride>(from, to, row, at, s);
  } else {
    pool_any<T, N>(from, to, row, at, s);
  }
}

}  // namespace convx::pooling
