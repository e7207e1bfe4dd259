// What the kernel is told, and a block's share of the work.
#pragma once
#include "methods/gates/geometry.h"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/cluster.h"
#include "platform/gpu/platform.h"

namespace convx::gates {

template <class T>
struct Arguments {
  const T *input, *squeeze, *squeeze_bias, *excite, *excite_bias;  // biases: null without
  T* result;
  const float* plane_sums;  // (images, tiles, channels), of PlaneSums alone
  int tiles;
  int channels, squeezed, pixels;
  int ranks;
  bool shares_pixels, stages_image, stages_matrices;
  Activation activation;
  Gate gate;
  float per_pixel;
  int own_channels, own_pixels, groups, parts;
  int gates_at, squeezed_at, exchange_at, partial_at, squeeze_at, excite_at, image_at;
  FastDivide by_ranks, by_vectors, by_pixels, by_fours;  // vectors, fours: of a block's channels
};

template <class T>
constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));

// Some of an axis.
struct Range {
  int begin, end;
  CONVX_DEVICE int count() const { return end - begin; }
};

// What a block of a cluster has of its image.
struct Share {
  int64_t image;
  int rank;
  Range channels, pixels;

  template <class T>
  CONVX_DEVICE explicit Share(const Arguments<T>& a)
      : image(a.by_ranks.quotient(blockIdx.x)), rank(static_cast<int>(a.by_ranks.remainder(blockIdx.x))) {
    const int channel = a.shares_pixels ? 0 : rank * a.own_channels;
    const int pixel = a.shares_pixels ? rank * a.own_pixels : 0;
    channels = {channel, min(channel + a.own_channels, a.channels)};
    pixels = {pixel, min(pixel + a.own_pixels, a.pixels)};
  }
};

CONVX_DEVICE Range share_of(int all, int part, int parts) {
  return {static_cast<int>(static_cast<int64_t>(all) * part / parts),
          static_cast<int>(static_cast<int64_t>(all) * (part + 1) / parts)};
}

// A block's shared memory.
struct Memory {
  float *means, *gates, *squeezed, *exchange, *partial;
  unsigned char *squeeze, *excite, *image;

  template <class T>
  CONVX_DEVICE Memory(const Arguments<T>& a, unsigned char* shared)
      : means(reinterpret_cast<float*>(shared)),
        gates(means + a.gates_at),
        squeezed(means + a.squeezed_at),
        exchange(means + a.exchange_at),
        partial(means + a.partial_at),
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

}  // namespace convx::gates
