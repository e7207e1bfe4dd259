// How an image is shared out among the blocks of a cluster, and a block's shared memory.
#pragma once
#include <algorithm>
#include <cstdint>

#include "problem/divide.h"
#include "problem/excite_problem.h"

namespace convx::squeeze_excite {

constexpr int kThreads = 512;
constexpr int kMostWarps = kThreads / 32;
constexpr int kMostRanks = 8;  // blocks of a cluster that any GPU with clusters can place
constexpr int kVectorBytes = 16;

// What a block keeps in shared memory.
struct Staging {
  bool image;     // its part of the image, between the sums and the products with the gates
  bool matrices;  // its rows of both, which come while it sums
};

struct Geometry {
  int64_t vector;   // elements that a thread moves at once
  int64_t vectors;  // of them the channels are
  int64_t groups;   // of threads that have a pixel's vectors, in channels_last
  int64_t parts;    // of those groups, that are summed at the same time
  // In floats: sums of a block, of all; gates; squeezed values; what threads or warps have summed.
  int64_t pooled_at, gates_at, squeezed_at, partial_at;
  int64_t squeeze_at, excite_at, image_at, shared_bytes;
};

// A block has some of the pixels in channels_last, some of the planes in nchw: memory without gaps in both.
inline Geometry geometry_of(const ExciteProblem& p, int64_t ranks, const Staging& staging) {
  Geometry g;
  const int64_t element = element_size(p.dtype);
  g.vector = kVectorBytes / element;
  g.vectors = p.channels / g.vector;
  g.groups = std::max<int64_t>(1, kThreads / std::max<int64_t>(1, g.vectors));
  g.parts = std::clamp<int64_t>(kThreads * 4 / p.channels, 1, g.groups);
  const bool is_nhwc = p.layout == Layout::nhwc;
  g.pooled_at = p.channels;
  g.gates_at = g.pooled_at + p.channels;
  g.squeezed_at = g.gates_at + p.channels;
  g.partial_at = round_up(g.squeezed_at + p.squeezed_channels, 4);
  const int64_t partial = is_nhwc ? g.groups * p.channels : p.channels + kMostWarps;
  g.squeeze_at = round_up((g.partial_at + partial) * 4, kVectorBytes);
  const int64_t rows = divide_up(p.squeezed_channels, ranks), vectors = divide_up(g.vectors, ranks);
  g.excite_at = g.squeeze_at + (staging.matrices ? rows * p.channels * element : 0);
  g.image_at = g.excite_at + (staging.matrices ? vectors * kVectorBytes * p.squeezed_channels : 0);
  const int64_t image = is_nhwc ? divide_up(p.pixels(), ranks) * g.vectors : vectors * p.pixels();
  g.shared_bytes = g.image_at + (staging.image ? image * kVectorBytes : 0);
  return g;
}

}  // namespace convx::squeeze_excite
