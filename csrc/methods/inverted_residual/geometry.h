// What lies where in the shared memory of a block, and in the packed filters. Bytes, but for what is said.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/inverted_residual/shape.h"
#include "problem/block_problem.h"
#include "problem/divide.h"

namespace convx::inverted_residual {

constexpr int64_t kMatrix = 16;           // rows of a product's tile, and channels of a pair of tiles
constexpr int64_t kStepBytes = 32;        // of a row, in one step of a product's depth
constexpr int64_t kPairBytes = 512;       // filters of a pair of tiles and one step of the depth, for a warp
constexpr int64_t kPairSumsBytes = 1024;  // sums of a pair of tiles
constexpr int64_t kChunksInFlight = 3;    // that are expanded, filtered and projected at a time

// A block of threads makes tile_height x tile_width results of one image, whole strips of its shape, with
// `chunk` expanded channels at a time.
struct Tiling {
  int64_t shape = 0;  // kShapes[shape]: what is fixed when kernels are compiled
  int64_t tile_height = 0, tile_width = 0;
  int64_t chunk = 0;
  // Of the project product: over pixels, over output channels and, where those are more than enough, over the
  // depth.
  int64_t warps_down = 0, warps_across = 0;
  int64_t ahead = 1;  // chunks whose filters are fetched before their turn
  int64_t ranks = 1;  // blocks of a cluster, which share a tile's chunks
  int64_t warps() const { return warps_down * warps_across; }
};

// 8 rows of 16 bytes that are read at once lie in different banks; for 16 channels, of which there is little
// to read, room counts for more.
constexpr int64_t fragment_pitch(int64_t bytes) {
  return bytes % 32 == 0 && bytes > 32 ? bytes + 16 : bytes;
}

// Of every block of a cluster, and of each of so many warps of its, a share of the sums of pairs of tiles;
// none where one warp has all that there is of a sum.
inline int64_t exchange_bytes(int64_t pairs_of_sums, int64_t ranks, int64_t splits = 1) {
  return ranks * splits > 1 ? divide_up(pairs_of_sums, ranks) * ranks * splits * kPairSumsBytes : 0;
}

struct Geometry {
  int64_t depth, out_pairs, chunks;  // channels rounded up to what products take, pairs of tiles of them
  int64_t depth_steps, chunk_steps;  // of kStepBytes: of the source's pixels, of a chunk's
  int64_t rank_chunks;               // that a block of a cluster has; the last one may have fewer
  int64_t tiles_down, tiles_across, blocks;
  int64_t project_across, splits;       // warps over output channels; that share a pair of tiles' depth
  int64_t window_height, window_width;  // of the expanded tensor
  int64_t window_tiles, result_tiles;   // of kMatrix pixels
  // Packed filters: of a chunk its 1x1 filters and bias, its depthwise filters and bias, the 1x1 filters that
  // follow, and of float32 whether some of these are not finite. After the last chunk the bias of the result,
  // in float32.
  int64_t expand_bias_at, depthwise_at, project_at, non_finite_at, chunk_bytes, packed_bytes;
  // Shared memory, which begins with the source's pixels.
  int64_t source_pitch, window_pitch, filtered_pitch;  // of a pixel
  int64_t window_at, window_bytes, filtered_at, filtered_bytes, ring_at, places_at, barriers_at;
  int64_t exchange_at;  // sums of the other blocks of the cluster
  int64_t shared_bytes;
  int64_t ring;  // chunks of filters
};

inline Geometry geometry_of(const BlockProblem& p, const Tiling& t) {
  const int64_t bytes = element_size(p.dtype);
  const Shape& shape = kShapes[p.stride - 1][t.shape];
  Geometry g{};
  g.depth = round_up(p.expand_depth(), kStepBytes / bytes);
  g.depth_steps = g.depth * bytes / kStepBytes, g.chunk_steps = t.chunk * bytes / kStepBytes;
  g.out_pairs = divide_up(p.out_channels, kMatrix);
  g.chunks = divide_up(p.expanded_channels, t.chunk);
  g.rank_chunks = divide_up(g.chunks, t.ranks);
  g.project_across = divide_up(g.out_pairs, static_cast<int64_t>(shape.tiles_across / 2));
  g.splits = shape.shares ? std::max<int64_t>(t.warps_across / g.project_across, 1) : 1;
  g.tiles_down = divide_up(p.out_height, t.tile_height);
  g.tiles_across = divide_up(p.out_width, t.tile_width);
  g.blocks = p.batch * g.tiles_down * g.tiles_across * t.ranks;
  g.window_height = (t.tile_height - 1) * p.stride + p.filter;
  g.window_width = (t.tile_width - 1) * p.stride + p.filter;
  g.window_tiles = divide_up(
      std::min(g.window_height, p.expanded_height) * std::min(g.window_width, p.expanded_width), kMatrix);
  g.result_tiles = divide_up(t.tile_height * t.tile_width, kMatrix);

  const int64_t pairs = t.chunk / kMatrix;
  g.expand_bias_at = g.depth_steps * pairs * kPairBytes;
  g.depthwise_at = g.expand_bias_at + t.chunk * 4;
  g.project_at = g.depthwise_at + (p.filter * p.filter + 1) * t.chunk * 4;
  g.non_finite_at = g.project_at + g.chunk_steps * g.out_pairs * kPairBytes;
  g.chunk_bytes = g.non_finite_at + (bytes == 4 ? 16 : 0);
  // A few bytes more, by which sizes tell packings apart.
  g.packed_bytes = g.chunks * g.chunk_bytes + g.out_pairs * kMatrix * 4 + t.chunk;

  g.source_pitch = fragment_pitch(g.depth * bytes);
  g.window_pitch = fragment_pitch(t.chunk * bytes);
  g.filtered_pitch = fragment_pitch(t.chunk * bytes);
  g.ring = std::min(kChunksInFlight + t.ahead, g.rank_chunks);
  const int64_t buffers = std::min<int64_t>(2, g.rank_chunks);
  g.window_bytes = g.window_height * g.window_width * g.window_pitch;
  g.filtered_bytes = g.result_tiles * kMatrix * g.filtered_pitch;
  g.window_at = g.window_tiles * kMatrix * g.source_pitch;
  g.filtered_at = g.window_at + buffers * g.window_bytes;
  g.ring_at = g.filtered_at + buffers * g.filtered_bytes;
  g.places_at = g.ring_at + g.ring * g.chunk_bytes;
  g.barriers_at = g.places_at + g.window_tiles * kMatrix * 8;
  g.exchange_at = g.barriers_at + round_up(kMostRing * 8, 16);
  const int64_t sums = t.warps_down * g.project_across * shape.tiles_down * shape.tiles_across / 2;
  g.shared_bytes = g.exchange_at + exchange_bytes(sums, t.ranks, g.splits);
  return g;
}

}  // namespace convx::inverted_residual
