// What the kernel is told, and a block's share of the work.
#pragma once
#include "methods/squeeze_excite/geometry.h"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/cluster.h"
#include "platform/gpu/platform.h"

namespace convx::squeeze_excite {

template <class T>
struct Arguments {
  const T *input, *squeeze, *squeeze_bias, *excite, *excite_bias;  // biases: null without
  T* result;
  int channels, squeezed, pixels;
  int ranks;
  bool stages_image, stages_matrices;
  Activation activation;
  Gate gate;
  float per_pixel;
  int groups, parts, pooled_at, gates_at, squeezed_at, partial_at, squeeze_at, excite_at, image_at;
  FastDivide by_ranks, by_vectors, by_pixels, by_fours;  // fours: of channels
};

template <class T>
constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));

// Some of an axis, for the block of a rank.
struct Range {
  int begin, end;
  CONVX_DEVICE int count() const { return end - begin; }
};

CONVX_DEVICE Range share_of(int all, int rank, int ranks) {
  return {static_cast<int>(static_cast<int64_t>(all) * rank / ranks),
          static_cast<int>(static_cast<int64_t>(all) * (rank + 1) / ranks)};
}

// Which of them has a place of the axis.
CONVX_DEVICE int rank_of(int place, int all, int ranks) {
  return static_cast<int>((static_cast<int64_t>(place + 1) * ranks - 1) / all);
}

// A block's shared memory.
struct Memory {
  float *own, *pooled, *gates, *squeezed, *partial;
  unsigned char *squeeze, *excite, *image;

  template <class T>
  CONVX_DEVICE Memory(const Arguments<T>& a, unsigned char* shared)
      : own(reinterpret_cast<float*>(shared)),
        pooled(own + a.pooled_at),
        gates(own + a.gates_at),
        squeezed(own + a.squeezed_at),
        partial(own + a.partial_at),
        squeeze(shared + a.squeeze_at),
        excite(shared + a.excite_at),
        image(shared + a.image_at) {}
};

// Elements that lie one after the other, in whole vectors, to shared memory: all threads take part.
template <class T>
CONVX_DEVICE void copy_to(unsigned char* stage, const T* from, int count) {
  CONVX_NO_UNROLL
  for (int i = threadIdx.x * kVector<T>; i < count; i += kThreads * kVector<T>) {
    copy_async<kVectorBytes>(stage + i * static_cast<int>(sizeof(T)), from + i, kVectorBytes);
  }
}

CONVX_DEVICE Vector<float, 4>* vector_of_four(float* place) {
  return reinterpret_cast<Vector<float, 4>*>(place);
}
CONVX_DEVICE void add_to(Vector<float, 4>& sum, const Vector<float, 4>& more) {
  CONVX_UNROLL
  for (int i = 0; i < 4; ++i) sum.element[i] += more.element[i];
}

// Floats of shared memory, four at a time: lanes that lie a vector apart would meet the same banks one by
// one.
template <int Count>
CONVX_DEVICE void read_fours(float* from, float (&values)[Count]) {
  CONVX_UNROLL
  for (int i = 0; i < Count; i += 4) {
    const Vector<float, 4> four = *vector_of_four(from + i);
    CONVX_UNROLL
    for (int j = 0; j < 4; ++j) values[i + j] = four.element[j];
  }
}

// All threads that work on an image: a block's, or a cluster's.
CONVX_DEVICE void image_barrier(int ranks) {
  if (kHasClusters && ranks > 1) {
    cluster_arrive();
    cluster_wait();
  } else {
    block_barrier();
  }
}

}  // namespace convx::squeeze_excite
