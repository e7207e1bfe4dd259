// Squeeze-and-excitation in one kernel (Hu, Shen and Sun, 2018): means, both products, gates, and the input
// multiplied with them. An image is a block's, or that of the blocks of a cluster, which tell one another
// what they found by their shared memory; where it fits there, the input is read once.
#pragma once
#include "methods/activate.cuh"
#include "methods/squeeze_excite/pixels.cuh"
#include "methods/squeeze_excite/planes.cuh"
#include "platform/gpu/overlap.h"

namespace convx::squeeze_excite {

CONVX_DEVICE float gate_of(float value, Gate gate) {
  if (gate == Gate::hardsigmoid) return clamp_keeping_nan(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
  return fast_reciprocal(1.0f + expf(-value));
}

// A rank's rows of a matrix: in shared memory, where it stages them, or where they are.
template <class T>
struct Rows {
  Range rows;
  const T* first;

  CONVX_DEVICE Rows(const T* matrix, int columns, const Range& rows, bool is_staged, unsigned char* stage)
      : rows(rows), first(matrix + static_cast<int64_t>(rows.begin) * columns) {
    if (!is_staged) return;
    copy_to(stage, first, rows.count() * columns);
    first = reinterpret_cast<const T*>(stage);
  }
};

// The squeezed values of this rank, to all blocks of the cluster: a row of the matrix is a warp's.
template <int Lanes, class T>
CONVX_DEVICE void squeeze(const Arguments<T>& a, const Rows<T>& matrix, const Memory& memory) {
  constexpr int kWarps = kThreads / Lanes;
  const int warp = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
  CONVX_NO_UNROLL
  for (int row = warp; row < matrix.rows.count(); row += kWarps) {
    const T* const factors = matrix.first + static_cast<int64_t>(row) * a.channels;
    float sum = 0;
    CONVX_UNROLL_TWICE
    for (int c = lane * kVector<T>; c < a.channels; c += Lanes * kVector<T>) {
      const auto piece = *reinterpret_cast<const Vector<T, kVector<T> >*>(factors + c);
      float pooled[kVector<T>];
      read_fours(memory.pooled + c, pooled);
      CONVX_UNROLL
      for (int i = 0; i < kVector<T>; ++i) sum = multiply_add(widen(piece.element[i]), pooled[i], sum);
    }
    sum = segment_sum<Lanes, Lanes>(sum);
    const int channel = matrix.rows.begin + row;
    if (a.squeeze_bias != nullptr) sum += widen(a.squeeze_bias[channel]);
    const float value = activated<float>(sum, a.activation);
    if (lane < a.ranks) *in_block(memory.squeezed + channel, lane) = value;
  }
}

// What a row of the second matrix makes of the squeezed values, Count at a time.
template <int Count, class T>
CONVX_DEVICE float excited(const Arguments<T>& a, const T* factors, const Memory& memory) {
  float sum = 0;
  CONVX_UNROLL_TWICE
  for (int s = 0; s < a.squeezed; s += Count) {
    const auto piece = *reinterpret_cast<const Vector<T, Count>*>(factors + s);
    const auto values = *reinterpret_cast<const Vector<float, Count>*>(memory.squeezed + s);
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) sum = multiply_add(widen(piece.element[i]), values.element[i], sum);
  }
  return sum;
}

// The gates of this rank's channels: each is a thread's. Pixels need those of all channels, so that they go
// to all blocks then.
template <class T, bool ChannelsLast>
CONVX_DEVICE void excite(const Arguments<T>& a, const Rows<T>& matrix, const Memory& memory) {
  CONVX_NO_UNROLL
  for (int row = threadIdx.x; row < matrix.rows.count(); row += kThreads) {
    const int channel = matrix.rows.begin + row;
    const float bias =
        a.excite_bias != nullptr ? widen(load<T, 1>(a.excite_bias + channel).element[0]) : 0.0f;
    const T* const factors = matrix.first + static_cast<int64_t>(row) * a.squeezed;
    const float sum = a.squeezed % 4 == 0   ? excited<4>(a, factors, memory)
                      : a.squeezed % 2 == 0 ? excited<2>(a, factors, memory)
                                            : excited<1>(a, factors, memory);
    const float gate = gate_of(sum + bias, a.gate);
    if (ChannelsLast) {
      for (int rank = 0; rank < a.ranks; ++rank) *in_block(memory.gates + channel, rank) = gate;
    } else {
      memory.gates[channel] = gate;
    }
  }
}

template <class T, int Lanes, bool ChannelsLast>
CONVX_KERNEL(kThreads, 2)
squeeze_excite_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_DYNAMIC_SHARED(shared);
  const int64_t image = a.by_ranks.quotient(blockIdx.x);
  const int rank = static_cast<int>(a.by_ranks.remainder(blockIdx.x));
  const Memory memory(a, shared);
  const Range rows = share_of(a.squeezed, rank, a.ranks);
  const Range vectors = share_of(a.channels / kVector<T>, rank, a.ranks);
  const Range channels = {vectors.begin * kVector<T>, vectors.end * kVector<T>};
  typename std::conditional<ChannelsLast, Pixels<T>, Planes<Lanes, T> >::type share(a, image, rank, memory);
  take_turn();
  if (a.stages_image) share.stage();
  commit_copies();
  const Rows<T> squeezes(a.squeeze, a.channels, rows, a.stages_matrices, memory.squeeze);
  const Rows<T> excites(a.excite, a.squeezed, channels, a.stages_matrices, memory.excite);
  commit_copies();
  wait_copies<1>();  // the image
  block_barrier();
  share.sum();
  wait_copies<0>();
  image_barrier(a.ranks);
  CONVX_NO_UNROLL
  for (int c = threadIdx.x * 4; c < a.channels; c += kThreads * 4) {
    Vector<float, 4> mean = share.totals(c);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) mean.element[i] *= a.per_pixel;
    *vector_of_four(memory.pooled + c) = mean;
  }
  block_barrier();
  squeeze<Lanes, T>(a, squeezes, memory);
  image_barrier(a.ranks);
  excite<T, ChannelsLast>(a, excites, memory);
  if (ChannelsLast) {
    image_barrier(a.ranks);
  } else {
    block_barrier();
  }
  share.scale();
}

}  // namespace convx::squeeze_excite
