// How an image is shared out among the blocks of a cluster, and a block's shared memory.
#pragma once
#include <algorithm>
#include <cstdint>

#include "problem/divide.h"
#include "problem/excite_problem.h"

namespace convx::gates {

constexpr int kThreads = 512;
constexpr int kVectorBytes = 16;

struct Tiling {
  int64_t lanes;
  int64_t ranks;       // blocks of a cluster, which share an image
  bool shares_pixels;  // each has all channels of some pixels, in channels_last; else some channels of all
  // What a block keeps in shared memory: its part of the image, between the sums and the products with the
  // gates; its columns of the first matrix and rows of the second, which come while it sums.
  bool stages_image, stages_matrices;
};

struct Geometry {
  int64_t vector;       // elements that a thread moves at once
  int64_t own_vectors;  // of channels, a block's; the last one of a cluster may have fewer
  int64_t own_channels, own_pixels;
  int64_t groups;  // of threads that have a pixel's vectors, in channels_last
  int64_t parts;   // of those groups, that are summed at the same time
  // In floats: a block's means and gates; squeezed values; what each block brings to them; what threads or
  // warps have summed.
  int64_t gates_at, squeezed_at, exchange_at, partial_at;
  int64_t squeeze_at, excite_at, image_at, shared_bytes;
};

constexpr int kSumLanes = 8;  // of a plane, or a part of it

inline Geometry geometry_of(const ExciteProblem& p, const Tiling& t) {
  Geometry g;
  const int64_t element = element_size(p.dtype);
  g.vector = kVectorBytes / element;
  g.own_vectors = divide_up(p.channels / g.vector, t.shares_pixels ? 1 : t.ranks);
  g.own_channels = g.own_vectors * g.vector;
  g.own_pixels = divide_up(p.pixels(), t.shares_pixels ? t.ranks : 1);
  g.groups = kThreads / g.own_vectors;
  g.parts = std::clamp<int64_t>(kThreads * 4 / g.own_channels, 1, g.groups);
  g.gates_at = g.own_channels;
  g.squeezed_at = g.gates_at + g.own_channels;
  const int64_t squeezed = round_up(p.squeezed_channels, 4);
  g.exchange_at = g.squeezed_at + squeezed;
  g.partial_at = g.exchange_at + t.ranks * squeezed;
  const int64_t partial =
      p.layout == Layout::nhwc ? g.groups * g.own_channels : g.own_channels + kThreads / kSumLanes;
  g.squeeze_at = round_up((g.partial_at + partial) * 4, kVectorBytes);
  const int64_t matrix = t.stages_matrices ? g.own_channels * p.squeezed_channels * element : 0;
  g.excite_at = g.squeeze_at + matrix;
  g.image_at = g.excite_at + matrix;
  g.shared_bytes = g.image_at + (t.stages_image ? g.own_channels * g.own_pixels * element : 0);
  return g;
}

}  // namespace convx::gates
