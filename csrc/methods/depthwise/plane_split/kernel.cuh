// Small planes at low latency: a block copies whole planes into shared memory as one run of 16-byte vectors,
// each thread makes one strip of results from there, and the results go back the same way. One round trip
// to memory, no loops around it: all loads of source, filter and bias are issued before the first use.
#pragma once
#include "methods/depthwise/plane_split/geometry.h"
#include "methods/depthwise/strip/taps.cuh"
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::plane_split {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;
  const T* bias;  // null without
  T* result;
  int planes, planes_of_block, source_floats;
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

// One round of a block's copy: up to kBatch vectors a thread, `first` and every blockDim.x-th after it.
template <class T>
struct Round {
  static constexpr int kBatch = 4, N = kVector<T>;
  Vector<T, N> piece[kBatch];

  CONVX_DEVICE void load_from(const T* source, int first, int vectors) {
    CONVX_UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + k * static_cast<int>(blockDim.x);
      if (i < vectors) piece[k] = load<T, N>(source + i * N);
    }
  }

  CONVX_DEVICE void store_to(float* shared, int first, int vectors) const {
    CONVX_UNROLL
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + k * static_cast<int>(blockDim.x);
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
};

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

  const int first_plane = static_cast<int>(blockIdx.x) * a.planes_of_block;
  const int planes_left = a.planes - first_plane;
  const int planes = planes_left < a.planes_of_block ? planes_left : a.planes_of_block;
  const int source_plane = a.source_height * a.source_width, result_plane = a.result_height * a.result_width;
  const int thread = static_cast<int>(threadIdx.x);

  // Whole vectors around the block's planes, unless they reach beyond an end of the tensor: such a block
  // copies its planes by elements.
  const T* const source_begin = a.source + static_cast<int64_t>(first_plane) * source_plane;
  const int source_phase = phase_of(source_begin), source_end = source_phase + planes * source_plane;
  const T* const source_run = source_begin - source_phase;
  const bool whole = (static_cast<int64_t>(first_plane) * source_plane >= source_phase) &&
                     (source_end % kVector<T> == 0 ||
                      static_cast<int64_t>(planes_left - planes) * source_plane >= kVector<T>);
  const int vectors = whole ? (source_end + kVector<T> - 1) / kVector<T> : 0;
  take_turn();
  Round<T> round;
  round.load_from(source_run, thread, vectors);

  const int units = planes * static_cast<int>(a.units.divisor);
  const int own_plane = static_cast<int>(a.units.quotient(thread < units ? thread : units - 1));
  const uint32_t channel = a.channels.remainder(static_cast<uint32_t>(first_plane + own_plane));
  const T* const filter = a.weight + static_cast<int64_t>(channel) * (Filter * Filter);
  T tap[Filter * Filter], bias_element{};
  CONVX_UNROLL
  for (int i = 0; i < Filter * Filter; ++i) tap[i] = load<T, 1>(filter + i).element[0];
  if (a.bias != nullptr) bias_element = load<T, 1>(a.bias + channel).element[0];

  round.store_to(source, thread, vectors);
  const int round_step = Round<T>::kBatch * static_cast<int>(blockDim.x);
  CONVX_NO_UNROLL
  for (int first = thread + round_step; first < vectors; first += round_step) {
    round.load_from(source_run, first, vectors);
    round.store_to(source, first, vectors);
  }
  if (!whole) {
    for (int i = source_phase + thread; i < source_end; i += static_cast<int>(blockDim.x))
      source[i] = widen(load<T, 1>(source_run + i).element[0]);
  }
  if (thread < kZeros) source[a.source_floats + thread] = 0.0f;
  block_barrier();

  float weight[Filter * Filter];
  CONVX_UNROLL
  for (int i = 0; i < Filter * Filter; ++i) {
    // Two named values: a choice between array elements would keep the array in memory.
    const float forward = widen(tap[i]), flipped = widen(tap[Filter * Filter - 1 - i]);
    weight[i] = a.flip ? float(flipped) : float(forward);
  }
  const float bias = widen(bias_element);
  T* const result_begin = a.result + static_cast<int64_t>(first_plane) * result_plane;
  const int result_phase = phase_of(result_begin);
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
      activate<T>(sum[o], a.activation);
      if (row + o < 0 || row + o >= a.result_height) continue;
      CONVX_UNROLL
      for (int v = 0; v < kResults; ++v) {
        const bool own = kTransposed ? column + v >= 0 && column + v < a.result_width : v >= begin;
        if (own) to[o * a.result_width + v] = narrow<T>(sum[o][v]);
      }
    }
  }
  block_barrier();
  copy_out(result_begin - result_phase, results, result_phase, planes * result_plane);
}

}  // namespace convx::depthwise::plane_split
