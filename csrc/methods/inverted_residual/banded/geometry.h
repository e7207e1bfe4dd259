// What lies where in the shared memory of a block, and in the packed filters. Bytes, but for what is said.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/inverted_residual/banded/patches.h"
#include "methods/inverted_residual/banded/shape.h"
#include "methods/inverted_residual/geometry.h"

namespace convx::inverted_residual::banded {

// A block of threads makes tile_height rows of results, as wide as a window allows, of one image.
struct Tiling {
  int64_t shape = 0;  // kShapes[shape]: what is fixed when kernels are compiled
  int64_t tile_height = 0;
  int64_t ahead = 1;  // chunks whose filters are fetched before their turn
  int64_t ranks = 1;  // blocks of a cluster, which share a tile's chunks
};

struct Geometry {
  int64_t chunk, chunks, rank_chunks, out_pairs, warps, window_rows;
  int64_t tiles_down, tiles_across, blocks;
  int64_t result_tiles, warps_down;  // of 16 results
  // Packed filters: of a chunk its 1x1 filters and bias, its depthwise filters and bias, the 1x1 filters that
  // follow, whether the first are not all finite. After the last chunk the bias of the result, in float32.
  int64_t expand_bias_at, depthwise_at, depthwise_bias_at, project_at, non_finite_at, chunk_bytes;
  int64_t packed_bytes;
  // Shared memory, which begins with windows and results of two chunks.
  int64_t ring_at, ring, barriers_at, exchange_at, shared_bytes;
};

constexpr int64_t kBiasBytes = 16;  // of a channel: four sums begin with it

// Of a channel: filter + 1 pieces, each of a word for every row of taps.
constexpr int taps_piece(int filter) {
  return filter == 3 ? 16 : 32;
}
constexpr int taps_bytes(int filter) {
  return (filter + 1) * taps_piece(filter);
}

inline End end_of(const BlockProblem& p) {
  return p.squeezed_channels > 0 ? End::filtered : End::project;
}

// Of a chunk's planes. Of filtered chunks that go to memory a lane has eight neighbours of 32 channels, which
// four matrices of planes hold in pairs (store_filtered.cuh): so planes are not in the order of channels.
constexpr int channel_of_plane(End end, int plane) {
  return end == End::project ? plane : plane / 32 * 32 + plane / 2 % 4 * 8 + plane / 8 % 4 * 2 + plane % 2;
}

inline Geometry geometry_of(const BlockProblem& p, const Tiling& t) {
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  const int filter = static_cast<int>(p.filter), stride = static_cast<int>(p.stride);
  Geometry g{};
  g.chunk = shape.chunk, g.chunks = divide_up(p.expanded_channels, g.chunk);
  g.rank_chunks = divide_up(g.chunks, t.ranks);
  g.out_pairs = end_of(p) == End::project ? divide_up(p.out_channels, kMatrix) : 0;
  g.warps = warps_of(shape, filter, stride), g.window_rows = g.warps * rows_of_warp(shape, stride);
  g.tiles_down = divide_up(p.out_height, t.tile_height);
  g.tiles_across = divide_up(p.out_width, static_cast<int64_t>(tile_width(filter, stride)));
  g.blocks = p.batch * g.tiles_down * g.tiles_across * t.ranks;
  // Rows of 16 or, two at a time, of eight; of flat tiles columns of eight.
  const bool flat = is_flat(shape, stride);
  const int64_t columns = std::min<int64_t>(tile_width(filter, stride), p.out_width);
  g.result_tiles = flat ? divide_up(columns, 2) : stride == 1 ? t.tile_height : divide_up(t.tile_height, 2);
  g.warps_down = divide_up(g.result_tiles, shape.tiles_down);

  const int64_t pairs = g.chunk / kMatrix;
  g.expand_bias_at = shape.depth_steps * pairs * kPairBytes;
  g.depthwise_at = g.expand_bias_at + pairs * 8 * kBiasBytes;
  g.depthwise_bias_at = g.depthwise_at + g.chunk * taps_bytes(filter);
  g.project_at = g.depthwise_bias_at + g.chunk * kBiasBytes;
  g.non_finite_at = g.project_at + pairs * g.out_pairs * kPairBytes;
  g.chunk_bytes = g.non_finite_at + 16;
  // A byte more, by which sizes tell packings apart: the other kernels' are even.
  g.packed_bytes = g.chunks * g.chunk_bytes + g.out_pairs * kMatrix * 4 + 1;

  g.ring_at = 2 * g.chunk * (window_pitch(shape, filter, stride) + filtered_pitch(shape, stride));
  g.ring = kChunksInFlight + t.ahead;
  g.barriers_at = g.ring_at + g.ring * g.chunk_bytes;
  g.exchange_at = g.barriers_at + round_up(kMostRing * 8, 16);
  const int64_t sums = end_of(p) == End::project ? g.warps * shape.tiles_down * shape.pairs : 0;
  g.shared_bytes = g.exchange_at + exchange_bytes(sums, t.ranks);
  return g;
}

}  // namespace convx::inverted_residual::banded
