// Squeeze-and-excitation in one kernel (Hu, Shen and Sun, 2018): means, both products, gates, and the input
// multiplied with them. An image is a block's, or that of the blocks of a cluster, which tell one another
// what they found by their shared memory; where it fits there, the input is read once.
//
// Part: what a block has of the image, Pixels or Planes; or sums of planes that the kernel before has made of
// it, for gates alone (PlaneSums).
#pragma once
#include "methods/activate.cuh"
#include "methods/epilogue.cuh"
#include "methods/gates/arguments.cuh"
#include "platform/gpu/overlap.h"

namespace convx::gates {

CONVX_DEVICE float gate_of(float value, Gate gate) {
  if (gate == Gate::hardsigmoid) return hardsigmoid(value);
  return fast_reciprocal(1.0f + expf(-value));
}

// What a block reads of a matrix: in shared memory, where it stages it, or where it is.
template <class T>
struct Matrix {
  const T* first;
  int pitch;  // of a row
};

// The columns of its channels, of the first matrix.
template <class T>
CONVX_DEVICE Matrix<T> squeeze_part(const Arguments<T>& a, const Range& channels, const Memory& memory) {
  const T* const first = a.squeeze + channels.begin;
  if (!a.stages_matrices) return {first, a.channels};
  T* const stage = reinterpret_cast<T*>(memory.squeeze);
  const int group = static_cast<int>(a.by_vectors.quotient(threadIdx.x));
  const int c = static_cast<int>(a.by_vectors.remainder(threadIdx.x)) * kVector<T>;
  CONVX_NO_UNROLL
  for (int row = c < channels.count() && group < a.groups ? group : a.squeezed; row < a.squeezed;
       row += a.groups) {
    copy_async<kVectorBytes>(stage + row * a.own_channels + c, first + row * a.channels + c, kVectorBytes);
  }
  return {stage, a.own_channels};
}

// The rows of its channels, of the second matrix.
template <class T>
CONVX_DEVICE Matrix<T> excite_part(const Arguments<T>& a, const Range& channels, const Memory& memory) {
  const T* const first = a.excite + static_cast<int64_t>(channels.begin) * a.squeezed;
  if (!a.stages_matrices) return {first, a.squeezed};
  copy_to(memory.excite, first, channels.count() * a.squeezed);
  return {reinterpret_cast<const T*>(memory.excite), a.squeezed};
}

// What sums begin with, where they will be.
template <class T>
CONVX_DEVICE void fetch_biases(const Arguments<T>& a, const Range& channels, const Memory& memory) {
  CONVX_NO_UNROLL
  for (int s = threadIdx.x; s < a.squeezed; s += kThreads) memory.squeezed[s] = bias_of(a.squeeze_bias, s);
  CONVX_NO_UNROLL
  for (int c = threadIdx.x; c < channels.count(); c += kThreads) {
    memory.gates[c] = bias_of(a.excite_bias, channels.begin + c);
  }
}

// What this block's part of the image brings to the squeezed values, to all blocks of the cluster.
template <int Lanes, class T>
CONVX_DEVICE void squeeze(const Arguments<T>& a, const Matrix<T>& matrix, const Range& channels, int rank,
                          const Memory& memory) {
  constexpr int kRowLanes = 8, kWarpRows = Lanes / kRowLanes;
  const int lane = threadIdx.x % kRowLanes;
  CONVX_NO_UNROLL
  for (int first = threadIdx.x / Lanes * kWarpRows; first < a.squeezed; first += kThreads / kRowLanes) {
    const int row = first + threadIdx.x % Lanes / kRowLanes;
    const T* const factors = matrix.first + static_cast<int64_t>(min(row, a.squeezed - 1)) * matrix.pitch;
    float sum = 0;
    CONVX_UNROLL_TWICE
    for (int c = lane * kVector<T>; c < channels.count(); c += kRowLanes * kVector<T>) {
      const auto piece = *reinterpret_cast<const Vector<T, kVector<T> >*>(factors + c);
      float mean[kVector<T>];
      read_fours(memory.means + c, mean);
      CONVX_UNROLL
      for (int i = 0; i < kVector<T>; ++i) sum = multiply_add(widen(piece.element[i]), mean[i], sum);
    }
    sum = segment_sum<Lanes, kRowLanes>(sum);
    if (row >= a.squeezed) continue;
    for (int to = lane; to < a.ranks; to += kRowLanes) {
      *in_block(memory.exchange + rank * a.squeezed + row, to) = sum;
    }
  }
}

// The squeezed values, of what all blocks have brought.
template <class T>
CONVX_DEVICE void collect(const Arguments<T>& a, const Memory& memory) {
  CONVX_NO_UNROLL
  for (int s = threadIdx.x; s < a.squeezed; s += kThreads) {
    float sum = memory.squeezed[s];
    CONVX_UNROLL_TWICE
    for (int rank = 0; rank < a.ranks; ++rank) sum += memory.exchange[rank * a.squeezed + s];
    memory.squeezed[s] = activated<float>(sum, a.activation);
  }
}

constexpr int kExciteLanes = 4;  // of a row of the second matrix

// What a lane's elements of a row make of the squeezed values, Count at a time.
template <int Count, class T>
CONVX_DEVICE float excited(const Arguments<T>& a, const T* factors, int lane, const Memory& memory) {
  float sum = 0;
  CONVX_UNROLL_TWICE
  for (int s = lane * Count; s < a.squeezed; s += kExciteLanes * Count) {
    const auto piece = *reinterpret_cast<const Vector<T, Count>*>(factors + s);
    const auto values = *reinterpret_cast<const Vector<float, Count>*>(memory.squeezed + s);
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) sum = multiply_add(widen(piece.element[i]), values.element[i], sum);
  }
  return sum;
}

// The gates of this block's channels.
template <int Lanes, class T>
CONVX_DEVICE void excite(const Arguments<T>& a, const Matrix<T>& matrix, const Range& channels,
                         const Memory& memory) {
  constexpr int kWarpRows = Lanes / kExciteLanes;
  const int lane = threadIdx.x % kExciteLanes;
  CONVX_NO_UNROLL
  for (int first = threadIdx.x / Lanes * kWarpRows; first < channels.count();
       first += kThreads / kExciteLanes) {
    const int own = first + threadIdx.x % Lanes / kExciteLanes, row = min(own, channels.count() - 1);
    const T* const factors = matrix.first + static_cast<int64_t>(row) * matrix.pitch;
    const float sum = a.squeezed % 4 == 0   ? excited<4>(a, factors, lane, memory)
                      : a.squeezed % 2 == 0 ? excited<2>(a, factors, lane, memory)
                                            : excited<1>(a, factors, lane, memory);
    const float total = segment_sum<Lanes, kExciteLanes>(sum);
    if (own < channels.count() && lane == 0) memory.gates[own] = gate_of(total + memory.gates[own], a.gate);
  }
}

template <class T, int Lanes, class Part>
CONVX_KERNEL(kThreads, 2)
squeeze_excite_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_DYNAMIC_SHARED(shared);
  const Share share(a);
  const Range& channels = share.channels;
  const Memory memory(a, shared);
  const bool is_cluster = kHasClusters && a.ranks > 1;
  if (is_cluster) cluster_arrive();
  Part part(a, share, memory);
  if (!Part::kHasPackedMatrices) take_turn();
  if (a.stages_image) part.stage();
  commit_copies();
  const Matrix<T> squeezes = squeeze_part(a, channels, memory);
  const Matrix<T> excites = excite_part(a, channels, memory);
  commit_copies();
  fetch_biases(a, channels, memory);
  if (Part::kHasPackedMatrices) take_turn();
  wait_copies<1>();  // the image
  block_barrier();
  part.average();
  wait_copies<0>();
  block_barrier();
  if (is_cluster) cluster_wait();  // the others have begun: their shared memory is theirs
  squeeze<Lanes, T>(a, squeezes, channels, share.rank, memory);
  if (is_cluster) {
    cluster_arrive();
    cluster_wait();
  } else {
    block_barrier();
  }
  collect(a, memory);
  block_barrier();
  excite<Lanes, T>(a, excites, channels, memory);
  block_barrier();
  part.scale();
}

}  // namespace convx::gates
