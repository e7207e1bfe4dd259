// How the deep families share out a product of few pixels, for planners and launchers.
#pragma once
#include <cstdint>

#include "methods/matrix/product.h"
#include "problem/divide.h"
#include "problem/problem.h"

namespace convx::deep {

constexpr int kWarps = 8;         // of a block, which share out its depth
constexpr int kPairFilters = 32;  // of a pair of fragments: a block's
// From a row of sums, a pixel's or a filter's, to the next: 8 lanes' four lie in different banks.
constexpr int kRowGap = 4;
constexpr int kMostFragments = 4;
constexpr int kPieceBytes = 16;        // of the depth, which a lane brings at once; a tap has whole ones
constexpr int64_t kMostPixels = 4096;  // beyond them others have work for all multiprocessors
// Pairs of steps whose operands a warp has in registers.
constexpr int steps_at_once(int64_t fragments) {
  return fragments < 3 ? 4 : 2;
}

// Without taps, pixels of all fragments are loaded together from planes: one, two or four.
constexpr bool has_kernel(int64_t fragments, bool planes, bool taps) {
  return taps || !planes || fragments != 3;
}

struct Tiling {
  int64_t lanes;
  int64_t fragments;  // of pixels, a block's
  int64_t ranks;      // blocks of a cluster, which share out the depth
  bool planes;        // images are planes of channels: pixels are neighbours, not channels
};

// Whether images are planes. Single pixels are channels in a row in either layout.
inline bool has_planes(const ConvProblem& p) {
  return p.layout == Layout::nchw && (p.in_height * p.in_width != 1 || p.out_height * p.out_width != 1);
}

// Whether lanes can read pixels and write quads of filters: of planes any, of rows of channels whole pieces.
inline bool has_whole_pieces(const ConvProblem& p, int64_t channels, int64_t filters) {
  return has_planes(p) || (channels % (kPieceBytes / element_size(p.dtype)) == 0 && filters % 4 == 0);
}

struct Geometry {
  int64_t step_pairs, pairs;         // of the depth, of the filters
  int64_t pixels, columns;           // of a block; blocks that share out the pixels
  int64_t blocks, exchange_at;       // bytes before what other blocks of a cluster write
  int64_t shared_bytes, warp_pairs;  // step pairs of the warp that has most
};

inline Geometry geometry_of(const matrix::Product& product, const Tiling& t, int64_t element_bytes) {
  constexpr int64_t kStepPairBytes = 4 * kPieceBytes;  // of a pixel
  Geometry g{};
  g.step_pairs = divide_up(product.depth, kStepPairBytes / element_bytes);
  g.pairs = divide_up(product.rows, int64_t{kPairFilters});
  g.pixels = t.fragments * t.lanes / 4;
  g.columns = divide_up(product.columns, g.pixels);
  g.blocks = g.columns * g.pairs * t.ranks;
  const int64_t sums = t.planes ? kPairFilters * (g.pixels + kRowGap) : g.pixels * (kPairFilters + kRowGap);
  g.exchange_at = kWarps * sums * 4;
  g.shared_bytes = g.exchange_at + (t.ranks > 1 ? g.pixels * kPairFilters * 4 : 0);
  g.warp_pairs = divide_up(g.step_pairs, kWarps * t.ranks);
  return g;
}

}  // namespace convx::deep
