// Pooling on CPUs: vector lanes along channels, or along a row of a plane. Included last by each cpu_*.cpp.
#pragma once
#include "platform/cpu/rows.h"
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace pools {

using pooling::Job;

template <Pooling Kind>
struct Kernel {
  static constexpr int L = kLanes<float>;
  using V = Simd<float, L>;

  const Job& job;
  const PoolingProblem& p = job.problem;
  const PoolingWindow &down = p.down, &across = p.across;

  template <class Value>
  CONVX_INLINE static Value added(Value sum, Value value) {
    if constexpr (Kind == Pooling::average) {
      return sum + value;
    } else {
      return (value > sum) | (value != value) ? value : sum;  // NaN stays, as in torch
    }
  }
  template <class Value>
  CONVX_INLINE static Value nothing() {
    return Value{} + (Kind == Pooling::average ? 0.0f : -INFINITY);
  }
  // What a result's sum is divided by.
  float divisor(int64_t row, int64_t column) const {
    return Kind == Pooling::average ? static_cast<float>(p.divisor_of(row, column)) : 1.0f;
  }
  template <class Value>
  CONVX_INLINE static Value ended(Value sum, Value by) {
    return Kind == Pooling::average ? sum / by : sum;
  }

  // Of channels_last: the values that one result is made of.
  struct Taps {
    const float* first;
    int64_t rows, columns, row_step, column_step;
  };

  template <int Vectors>
  CONVX_INLINE static void pool_vectors(const Taps& taps, float by, float* to) {
    V sum[Vectors];
    CONVX_UNROLLED
    for (int v = 0; v < Vectors; ++v) sum[v] = nothing<V>();
    const float* row = taps.first;
    for (int64_t y = 0; y < taps.rows; ++y, row += taps.row_step) {
      const float* from = row;
      for (int64_t x = 0; x < taps.columns; ++x, from += taps.column_step) {
        CONVX_UNROLLED
        for (int v = 0; v < Vectors; ++v) sum[v] = added(sum[v], load<L>(from + v * L));
      }
    }
    CONVX_UNROLLED
    for (int v = 0; v < Vectors; ++v) store<L>(to + v * L, ended(sum[v], broadcast<V>(by)));
  }

  CONVX_INLINE static float pool_one(const Taps& taps, float by) {
    float sum = nothing<float>();
    for (int64_t y = 0; y < taps.rows; ++y) {
      for (int64_t x = 0; x < taps.columns; ++x) {
        sum = added(sum, taps.first[y * taps.row_step + x * taps.column_step]);
      }
    }
    return ended(sum, by);
  }

  // Taps of a result, for values that lie so far apart; plane: of its first value.
  CONVX_INLINE Taps taps_of(const float* plane, int64_t row, int64_t column, int64_t step) const {
    const int64_t y = down.begin(row), x = across.begin(column);
    const int64_t first_row = down.first(row) + y * down.dilation;
    const int64_t first_column = across.first(column) + x * across.dilation;
    return {plane + (first_row * across.extent + first_column) * step, down.end(row) - y,
            across.end(column) - x, down.dilation * across.extent * step, across.dilation * step};
  }

  // A row of results of all channels.
  void pool_pixels(int64_t index) const {
    const int64_t image = index / down.results, row = index % down.results, channels = p.channels;
    const float* const plane = job.input + image * down.extent * across.extent * channels;
    float* to = job.result + index * across.results * channels;
    for (int64_t column = 0; column < across.results; ++column, to += channels) {
      Taps taps = taps_of(plane, row, column, channels);
      const float by = divisor(row, column);
      int64_t c = 0;
      for (; c + 4 * L <= channels; c += 4 * L, taps.first += 4 * L) pool_vectors<4>(taps, by, to + c);
      for (; c + L <= channels; c += L, taps.first += L) pool_vectors<1>(taps, by, to + c);
      for (; c < channels; ++c, ++taps.first) to[c] = pool_one(taps, by);
    }
  }

  // Neighbouring results of a row whose columns' taps all meet the input: as many as there are whole vectors
  // for. Returns the first one that is left.
  template <int N, int Stride>
  CONVX_INLINE int64_t pool_run(const float* plane, int64_t row, int64_t column, int64_t end,
                                float* to) const {
    if (column + N > end) return column;
    const Simd<float, N> by = broadcast<Simd<float, N>>(divisor(row, column));
    for (; column + N <= end; column += N) {
      const Taps taps = taps_of(plane, row, column, 1);
      const int64_t last = across.first(column) + (across.filter - 1) * across.dilation + Stride * N;
      if (last > across.extent) break;  // pairs of which the second element may lie behind the row
      Simd<float, N> sum = nothing<Simd<float, N>>();
      const float* from_row = taps.first;
      for (int64_t y = 0; y < taps.rows; ++y, from_row += taps.row_step) {
        for (int64_t x = 0; x < taps.columns; ++x) {
          const float* const from = from_row + x * taps.column_step;
          Simd<float, N> value = load<N>(from);
          if constexpr (Stride == 2) value = even_lanes(value, load<N>(from + N));
          sum = added(sum, value);
        }
      }
      store<N>(to + column, ended(sum, by));
    }
    return column;
  }

  template <int Stride>
  CONVX_INLINE int64_t pool_runs(const float* plane, int64_t row, int64_t column, int64_t end,
                                 float* to) const {
    if constexpr (L >= 8) column = pool_run<L, Stride>(plane, row, column, end, to);
    return pool_run<4, Stride>(plane, row, column, end, to);
  }

  // A plane of results.
  void pool_plane(int64_t index) const {
    const float* const plane = job.input + index * down.extent * across.extent;
    float* to = job.result + index * down.results * across.results;
    int64_t inside = 0, outside = across.results;  // columns whose taps all meet the input
    while (inside < outside && across.begin(inside) > 0) ++inside;
    while (outside > inside && across.end(outside - 1) < across.filter) --outside;
    for (int64_t row = 0; row < down.results; ++row, to += across.results) {
      const auto pool_some = [&](int64_t column, int64_t end) {
        for (; column < end; ++column) {
          to[column] = pool_one(taps_of(plane, row, column, 1), divisor(row, column));
        }
      };
      pool_some(0, inside);
      int64_t done = inside;
      if (across.stride == 1) done = pool_runs<1>(plane, row, inside, outside, to);
      if (across.stride == 2) done = pool_runs<2>(plane, row, inside, outside, to);
      pool_some(done, across.results);
    }
  }

  void run(const ThreadPool& pool) const {
    const bool are_pixels = p.layout == Layout::nhwc;
    const int64_t tasks = p.batch * (are_pixels ? down.results : p.channels);
    const int64_t values = down.results * across.results * p.batch * p.channels * down.filter * across.filter;
    // Less than some ten microseconds of work stays in this thread.
    const int64_t grain = values < 65536 ? tasks : ceil_divide(tasks, pool.threads);
    pool.parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) are_pixels ? pool_pixels(task) : pool_plane(task);
    });
  }
};

}  // namespace pools

void run(const pooling::Job& job, const ThreadPool& pool) {
  if (job.problem.kind == Pooling::max) return pools::Kernel<Pooling::max>{job}.run(pool);
  pools::Kernel<Pooling::average>{job}.run(pool);
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
