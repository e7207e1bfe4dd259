// Small planes at low latency: a block copies whole planes into shared memory as one run of 16-byte vectors,
// each thread makes one strip of results from there, and the results go back the same way. One round trip
// to memory, no loops around it: all loads of source, filter and bias are issued before the first use.
#pragma once
#include "methods/depthwise/plane_split/geometry.h"
#include "methods/depthwise/strip/taps.cuh"
#include "methods/epilogue.cuh"
#include "platform/platform.h"

namespace convx::depthwise::plane_split {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;
  const T* bias;  // null without
  T* result;
  int64_t planes;
  int planes_of_block, source_floats;
  int source_height, source_width, result_height, result_width;
  int first_source_row, first_source_column, first_result_row, first_result_column;
  FastDivide strips, units, channels;  // units of a plane
  bool flip;
  Activation activation;
};

template <class T, int Filter, Mapping M>
struct Form {
  static constexpr int kMinBlocks = Filter == 7 ? 4 : (Filter == 3 ? 6 : 5);
};

// Elements of a 16-byte vector, and how many of them lie before `address` in the vector around it.
template <class T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));
template <class T>
CONVX_DEVICE int phase_of(const T* address) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(address) % 16 / sizeof(T));
}

// shared[i] = source[i] for `vectors` vectors; those that are not all within low .. high - 1, the tensor, are
// read element by element.
template <class T>
CONVX_DEVICE void copy_in(float* shared, const T* source, int vectors, int low, int high) {
  constexpr int kBatch = 4, N = kVector<T>;
  const int threads = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < vectors; first += kBatch * threads) {
    Vector<T, N> piece[kBatch];
    CONVX_UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + k * threads, at = i * N;
      if (i >= vectors) continue;
      if (at >= low && at + N <= high) {
        piece[k] = load<T, N>(source + at);
      } else {
        CONVX_UNROLL
        for (int j = 0; j < N; ++j) {
          piece[k].element[j] = T{};
          if (at + j >= low && at + j < high) piece[k].element[j] = load<T, 1>(source + at + j).element[0];
        }
      }
    }
    CONVX_UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + k * threads;
      if (i >= vectors) continue;
      CONVX_UNROLL
      for (int quarter = 0; quarter < N; quarter += 4) {
        Vector<float, 4> wide;
        CONVX_UNROLL
        for (int j = 0; j < 4; ++j) wide.element[j] = widen(piece[k].element[quarter + j]);
        *reinterpret_cast<Vector<float, 4>*>(shared + (i * N + quarter)) = wide;
      }
    }
  }
}

// The `count` elements of shared from `phase` on, to result + phase; result is a multiple of 16 bytes.
template <class T>
CONVX_DEVICE void copy_out(T* result, const T* shared, int phase, int count) {
  constexpr int N = kVector<T>;
  const int end = phase + count;
  for (int i = static_cast<int>(threadIdx.x) * N; i < end; i += static_cast<int>(blockDim.x) * N) {
    const Vector<T, N> piece = *reinterpret_cast<const Vector<T, N>*>(shared + i);
    if (i >= phase && i + N <= end) {
      store<T, N>(result + i, piece);
    } else {
      CONVX_UNROLL
      for (int j = 0; j < N; ++j) {
        if (i + j >= phase && i + j < end) store<T, 1>(result + i + j, Vector<T, 1>{{piece.element[j]}});
      }
    }
  }
}

template <int Lanes, class T, int Filter, Mapping M>
CONVX_KERNEL(kThreads, (Form<T, Filter, M>::kMinBlocks))
plane_split_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  constexpr bool kTransposed = M == Mapping::transpose2;
  constexpr int kRows = rows_of(M), kResults = strip_of(M);
  constexpr int kColumns = M == Mapping::correlate1 ? 7 : M == Mapping::correlate2 ? 14 : 7;
  using Index = strip::Taps<M, Filter, kColumns, kRows>;
  constexpr int kWindow = Index::kLeft + kColumns + Index::kRight, kSourceRows = Index::kSourceRows;
  CONVX_DYNAMIC_SHARED(shared);
  float* const source = reinterpret_cast<float*>(shared);
  T* const results = reinterpret_cast<T*>(source + a.source_floats + kZeros);

  const int64_t first_plane = static_cast<int64_t>(blockIdx.x) * a.planes_of_block;
  const int planes = static_cast<int>(a.planes - first_plane < a.planes_of_block ? a.planes - first_plane
                                                                                 : a.planes_of_block);
  const int source_plane = a.source_height * a.source_width, result_plane = a.result_height * a.result_width;
  const int64_t source_begin = first_plane * source_plane, result_begin = first_plane * result_plane;
  const int source_phase = phase_of(a.source + source_begin);
  const int vectors = (source_phase + planes * source_plane + kVector<T> - 1) / kVector<T>;

  // A block of several planes has a thread for each of its units, so a thread meets one channel alone.
  const int thread = static_cast<int>(threadIdx.x), units = planes * static_cast<int>(a.units.divisor);
  const int own_plane = static_cast<int>(a.units.quotient(thread < units ? thread : units - 1));
  const uint32_t channel = a.channels.remainder(static_cast<uint32_t>(first_plane + own_plane));
  const T* const filter = a.weight + static_cast<int64_t>(channel) * (Filter * Filter);
  T tap[Filter * Filter];
  const int tap_first = a.flip ? Filter * Filter - 1 : 0, tap_step = a.flip ? -1 : 1;
  CONVX_UNROLL
  for (int i = 0; i < Filter * Filter; ++i)
    tap[i] = load<T, 1>(filter + (tap_first + i * tap_step)).element[0];
  const float bias = a.bias != nullptr ? widen(load<T, 1>(a.bias + channel).element[0]) : 0.0f;

  const int64_t source_left = a.planes * source_plane - source_begin;
  const int most = vectors * kVector<T>;
  copy_in(source, a.source + (source_begin - source_phase), vectors, source_begin == 0 ? source_phase : 0,
          source_left + source_phase < most ? static_cast<int>(source_left) + source_phase : most);
  if (thread < kZeros) source[a.source_floats + thread] = 0.0f;
  block_barrier();

  float weight[Filter * Filter];
  CONVX_UNROLL
  for (int i = 0; i < Filter * Filter; ++i) weight[i] = widen(tap[i]);
  const int result_phase = phase_of(a.result + result_begin);
  CONVX_NO_UNROLL
  for (int unit = thread; unit < units; unit += static_cast<int>(blockDim.x)) {
    const int plane = static_cast<int>(a.units.quotient(unit));
    const int place = unit - plane * static_cast<int>(a.units.divisor);
    const int tile = static_cast<int>(a.strips.quotient(place));
    const int strip = place - tile * static_cast<int>(a.strips.divisor);
    // The last strip of a correlation moves back to end with the row; columns before begin are not its own.
    int column = strip * kResults + a.first_result_column, begin = 0;
    if (!kTransposed && column > a.result_width - kResults) {
      begin = column - (a.result_width - kResults);
      column -= begin;
    }
    const int source_column =
        a.first_source_column + (kTransposed ? strip * kColumns : column * (kColumns / kResults));
    const int row = tile * kRows + a.first_result_row;
    const int source_row = tile * Index::kSourceStep + a.first_source_row;
    float sum[kRows][kResults];
    CONVX_UNROLL
    for (int o = 0; o < kRows; ++o) {
      CONVX_UNROLL
      for (int v = 0; v < kResults; ++v) sum[o][v] = bias;
    }
    CONVX_UNROLL
    for (int i = 0; i < kSourceRows; ++i) {
      const bool inside = source_row + i >= 0 && source_row + i < a.source_height;
      const float* const from = source + (inside ? source_phase + plane * source_plane +
                                                       (source_row + i) * a.source_width + source_column
                                                 : a.source_floats);
      float window[kWindow];
      CONVX_UNROLL
      for (int j = 0; j < kWindow; ++j) {
        // Padding is less than the filter, so that only so many columns from either end can lie outside.
        const bool always = !kTransposed && j >= Filter - 1 && j < kWindow - (Filter - 1);
        const bool there = source_column + j >= 0 && source_column + j < a.source_width;
        window[j] = always || there ? from[j] : 0.0f;
      }
      CONVX_UNROLL
      for (int o = 0; o < kRows; ++o) {
        const int r = Index::filter_row(i, o);
        if (r < 0 || r >= Filter) continue;
        CONVX_UNROLL
        for (int q = 0; q < Filter; ++q) {
          CONVX_UNROLL
          for (int v = 0; v < kResults; ++v) {
            const int j = Index::window_index(v, q);
            if (j >= 0) sum[o][v] = multiply_add(window[j], weight[r * Filter + q], sum[o][v]);
          }
        }
      }
    }
    T* const to = results + (result_phase + plane * result_plane + row * a.result_width + column);
    CONVX_UNROLL
    for (int o = 0; o < kRows; ++o) {
      activate(sum[o], a.activation);
      if (row + o < 0 || row + o >= a.result_height) continue;
      CONVX_UNROLL
      for (int v = 0; v < kResults; ++v) {
        const bool own = kTransposed ? column + v >= 0 && column + v < a.result_width : v >= begin;
        if (own) to[o * a.result_width + v] = narrow<T>(sum[o][v]);
      }
    }
  }
  block_barrier();
  copy_out(a.result + (result_begin - result_phase), results, result_phase, planes * result_plane);
}

}  // namespace convx::depthwise::plane_split
