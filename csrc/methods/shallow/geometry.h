// How the shallow family shares out a product of few channels in channels_last, for planner and launcher.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/matrix/product.h"
#include "problem/divide.h"

namespace convx::shallow {

constexpr int64_t kWarps = 4;         // of a block
constexpr int64_t kPairFilters = 32;  // of a pair of fragments, whose lanes hold neighbours
constexpr int kMostPairs = 8;         // of steps of the depth: 256 channels
constexpr int kMostBlocks = 4;        // of a multiprocessor: threads have 128 registers

// Of pixels that a warp has at a time, half as many where channels are many.
constexpr int fragments_of(int64_t lanes, int64_t step_pairs) {
  return (lanes == 32 ? 4 : 2) / (step_pairs > 3 ? 2 : 1);
}

struct Tiling {
  int64_t lanes;
  int64_t block_pairs;   // of fragments of filters, that a block has
  int64_t pixel_blocks;  // that share out the pixels
};

struct Geometry {
  int64_t step_pairs, pairs;       // of the depth, of all filters
  int64_t pixels, groups, splits;  // of a warp at a time; of all pixels; of the filters
  int64_t blocks, shared_bytes;
};

inline Geometry geometry_of(const matrix::Product& product, const Tiling& t) {
  Geometry g{};
  g.step_pairs = divide_up(product.depth, 32);
  g.pairs = divide_up(product.rows, kPairFilters);
  g.pixels = fragments_of(t.lanes, g.step_pairs) * t.lanes / 4;
  g.groups = divide_up(product.columns, g.pixels);
  g.splits = divide_up(g.pairs, t.block_pairs);
  g.blocks = g.splits * t.pixel_blocks;
  g.shared_bytes = t.block_pairs * (g.step_pairs * 2048 + kPairFilters * 4);
  return g;
}

// For as many blocks at once as there are places; g: of any Tiling::pixel_blocks.
inline int64_t pixel_blocks_of(const Geometry& g, int64_t places) {
  return std::clamp<int64_t>(places / g.splits, 1, divide_up(g.groups, kWarps));
}

}  // namespace convx::shallow
