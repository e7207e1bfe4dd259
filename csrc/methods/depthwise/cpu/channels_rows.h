// channels_last forward and input gradient of the common filters. Lanes run along channels; a tile of target
// pixels stays in registers and every source pixel is loaded once per tile and meets every target pixel that
// it touches ("Optimizing depthwise separable convolution on DCU", Algorithm 1: o = (i + p - f) / s).
#pragma once
#include "methods/depthwise/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// A source this large leaves a second-level cache before the next row of tiles reads it. Both tensors
// together may leave a shared third-level one; prefetching a target that is still there costs up to a tenth,
// and so does it with a stride, where there is little of it beside the source.
constexpr int64_t kPrefetchBytes = 1 << 20, kTargetPrefetchBytes = 4 << 20;

// One axis of a tile: target positions it holds, source positions they need, and which tap joins two of them.
template <int Filter, int Stride, bool Transposed, int Tile>
struct TileAxis {
  static constexpr int kReach =
      Transposed ? (Filter - 1) / Stride : 0;  // source positions before the tile's own
  static constexpr int kSources =
      Transposed ? kReach + (Tile - 1) / Stride + 1 : (Tile - 1) * Stride + Filter;
  static_assert(!Transposed || Tile % Stride == 0, "a transposed tile starts at a multiple of the stride");
  static constexpr int tap(int source, int target) {
    return Transposed ? target - (source - kReach) * Stride : source - target * Stride;
  }
};

// Where one tile lies on an axis.
struct TileSpan {
  int64_t source;  // position of the tile's first source, may be outside
  int64_t target;  // position of its first target, may be outside when transposed
  int begin, end;  // targets of the tile that exist
  uint32_t valid;  // sources that exist, one bit each
};

template <class Axis, int Tile, int Stride, bool Transposed>
CONVX_INLINE TileSpan tile_span(int64_t tile, int64_t pad, int64_t source_size, int64_t target_size) {
  TileSpan span;
  if (Transposed) {
    const int64_t first = (pad / Tile + tile) * Tile;  // in padded positions u = target + pad
    span.source = first / Stride - Axis::kReach;
    span.target = first - pad;
  } else {
    span.target = tile * Tile;
    span.source = span.target * Stride - pad;
  }
  span.begin = static_cast<int>(maximum(0, -span.target));
  span.end = static_cast<int>(minimum(Tile, target_size - span.target));
  span.valid = 0;
  for (int i = 0; i < Axis::kSources; ++i) {
    const int64_t position = span.source + i;
    if (position >= 0 && position < source_size) span.valid |= uint32_t(1) << i;
  }
  return span;
}
template <int Tile, bool Transposed>
CONVX_INLINE int64_t tile_count(int64_t pad, int64_t target_size) {
  return Transposed ? (pad + target_size - 1) / Tile - pad / Tile + 1 : ceil_divide(target_size, Tile);
}

// A tile of the target for consecutive blocks of L channels.
template <class T>
struct ChannelTile {
  const T* source;  // channel 0 of the tile's first source pixel
  T* target;
  const Accumulator<T>* weight;           // [block][tap][lane]
  int64_t source_row, target_row, pixel;  // distances in elements; pixel is the number of channels
  int64_t block_begin, block_end;
  int64_t ahead, target_ahead;  // distances of the rows to prefetch, 0 for none
  TileSpan rows, columns;
  EpilogueArguments<void> epilogue;
};

template <class T, int Filter, int Stride, bool Transposed, int TileH, int TileW, bool Inside>
__attribute__((noinline)) void run_tile(const ChannelTile<T>& tile) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  using AxisH = TileAxis<Filter, Stride, Transposed, TileH>;
  using AxisW = TileAxis<Filter, Stride, Transposed, TileW>;
  // The taps that a source row meets stay in registers where there are enough beside the sums: as operands in
  // memory they would take one load for every multiply-add.
  constexpr bool kHeld = TileH * (TileW + Filter) + 2 <= kRegisters;
  const Ending<T> ending(tile.epilogue);
  const A* weight = tile.weight;
  for (int64_t block = tile.block_begin; block < tile.block_end; ++block, weight += Filter * Filter * L) {
    const int64_t channel = minimum(block * L, tile.pixel - L);  // the last block may repeat channels
    V sum[TileH][TileW];
    const V start = begin_of<T, L>(tile.epilogue, channel);
    CONVX_UNROLLED
    for (int h = 0; h < TileH; ++h) {
      CONVX_UNROLLED
      for (int w = 0; w < TileW; ++w) sum[h][w] = start;
    }
    if (tile.ahead != 0) {
      constexpr int kNewRows = Transposed ? TileH / Stride : TileH * Stride;
      constexpr int kNewColumns = Transposed ? TileW / Stride : TileW * Stride;
      CONVX_UNROLLED
      for (int i = 0; i < kNewRows; ++i) {
        CONVX_UNROLLED
        for (int j = 0; j < kNewColumns; ++j) {
          __builtin_prefetch(tile.source + channel + tile.ahead + i * tile.source_row + j * tile.pixel, 0, 2);
        }
      }
    }
    if (tile.target_ahead != 0) {
      CONVX_UNROLLED
      for (int h = 0; h < TileH; ++h) {
        CONVX_UNROLLED
        for (int w = 0; w < TileW; ++w) {
          __builtin_prefetch(tile.target + channel + tile.target_ahead + h * tile.target_row + w * tile.pixel,
                             1, 2);
        }
      }
    }
    CONVX_UNROLLED
    for (int i = 0; i < AxisH::kSources; ++i) {
      if (!(tile.rows.valid >> i & 1)) continue;
      const T* row = tile.source + i * tile.source_row + channel;
      V held[TileH][Filter];
      if constexpr (kHeld) {
        CONVX_UNROLLED
        for (int h = 0; h < TileH; ++h) {
          const int f = AxisH::tap(i, h);
          if (f < 0 || f >= Filter) continue;
          CONVX_UNROLLED
          for (int g = 0; g < Filter; ++g) {
            V tap = load<L>(weight + (f * Filter + g) * L);
            keep(tap);
            held[h][g] = tap;
          }
        }
      }
      CONVX_UNROLLED
      for (int j = 0; j < AxisW::kSources; ++j) {
        if (!Inside && !(tile.columns.valid >> j & 1)) continue;
        V x = load<L>(row + j * tile.pixel);
        keep(x);
        CONVX_UNROLLED
        for (int h = 0; h < TileH; ++h) {
          const int f = AxisH::tap(i, h);
          if (f < 0 || f >= Filter) continue;
          CONVX_UNROLLED
          for (int w = 0; w < TileW; ++w) {
            const int g = AxisW::tap(j, w);
            if (g < 0 || g >= Filter) continue;
            sum[h][w] += x * (kHeld ? held[h][g] : load<L>(weight + (f * Filter + g) * L));
          }
        }
      }
    }
    CONVX_UNROLLED
    for (int h = 0; h < TileH; ++h) {
      if (h < tile.rows.begin || h >= tile.rows.end) continue;
      T* row = tile.target + h * tile.target_row + channel;
      CONVX_UNROLLED
      for (int w = 0; w < TileW; ++w) {
        if (!Inside && (w < tile.columns.begin || w >= tile.columns.end)) continue;
        const V scaled = rescaled<T, L>(sum[h][w], tile.epilogue, channel);
        store<L>(row + w * tile.pixel, ending.template operator()<L>(scaled, row + w * tile.pixel));
      }
    }
  }
}

// Filters of blocks of channels as [block][tap][lane].
template <class T>
void pack_channel_weights(const T* weight, int64_t taps, int64_t channels, int64_t block_begin,
                          int64_t block_end, bool flipped, Accumulator<T>* packed) {
  constexpr int L = kLanes<Accumulator<T>>;
  for (int64_t block = block_begin; block < block_end; ++block, packed += taps * L) {
    const T* first = weight + minimum(block * L, channels - L) * taps;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const T* source = first + (flipped ? taps - 1 - tap : tap);
      for (int lane = 0; lane < L; ++lane) packed[tap * L + lane] = widen(source[lane * taps]);
    }
  }
}

// Channels are cut into chunks of a few blocks; a task is one row of tiles of one image for one chunk, chunk
// by chunk, so that a thread packs each chunk's filters once.
template <class T, int Filter, int Stride, bool Transposed>
struct ChannelRows {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr bool kWide = kRegisters == 32;
  static constexpr int kTileH = Transposed ? 2 : kWide ? 2 : 1;
  static constexpr int kTileW = Transposed ? (kWide ? 8 : 4) : 7;
  using AxisH = TileAxis<Filter, Stride, Transposed, kTileH>;
  using AxisW = TileAxis<Filter, Stride, Transposed, kTileW>;

  const Job& job;
  int64_t blocks = ceil_divide(job.channels, L);
  int64_t row_tiles = tile_count<kTileH, Transposed>(job.pad_top, job.target_height);
  int64_t column_tiles = tile_count<kTileW, Transposed>(job.pad_left, job.target_width);

  // A chunk's filters stay in a second-level cache. Fewer channels would be worse: where two threads write
  // parts of the same pixels, each prefetches the lines that the other writes (6 times slower at batch 1).
  int64_t chunks = ceil_divide(blocks * Filter * Filter * L * static_cast<int64_t>(sizeof(A)), 262144);

  int64_t tasks() const { return chunks * job.batch * row_tiles; }

  static void dispatch(const ChannelTile<T>& tile) {
    constexpr uint32_t kAll = (uint32_t(1) << AxisW::kSources) - 1;
    if (tile.columns.valid == kAll && tile.columns.begin == 0 && tile.columns.end == kTileW) {
      run_tile<T, Filter, Stride, Transposed, kTileH, kTileW, true>(tile);
    } else {
      run_tile<T, Filter, Stride, Transposed, kTileH, kTileW, false>(tile);
    }
  }

  void run(int64_t begin, int64_t end) const {
    constexpr int64_t kTaps = Filter * Filter;
    Scratch scratch(ceil_divide(blocks, chunks) * kTaps * L * static_cast<int64_t>(sizeof(A)));
    A* packed = scratch.as<A>();
    const int64_t per_chunk = job.batch * row_tiles;
    int64_t packed_chunk = -1;
    ChannelTile<T> tile;
    tile.weight = packed;
    tile.pixel = job.channels;
    tile.source_row = job.source_width * job.channels;
    tile.target_row = job.target_width * job.channels;
    tile.epilogue = job.epilogue;
    // The next row of tiles' new source rows, where the tensor does not stay in a second-level cache anyway.
    const int64_t source_bytes =
        job.batch * job.source_height * tile.source_row * static_cast<int64_t>(sizeof(T));
    const int64_t target_bytes =
        job.batch * job.target_height * tile.target_row * static_cast<int64_t>(sizeof(T));
    tile.ahead = source_bytes > kPrefetchBytes ? AxisH::kSources * tile.source_row : 0;
    tile.target_ahead =
        Stride == 1 && source_bytes + target_bytes > kTargetPrefetchBytes ? kTileH * tile.target_row : 0;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t chunk = task / per_chunk;
      const int64_t image = task % per_chunk / row_tiles;
      tile.block_begin = blocks * chunk / chunks;
      tile.block_end = blocks * (chunk + 1) / chunks;
      if (chunk != packed_chunk) {
        pack_channel_weights(static_cast<const T*>(job.weight), kTaps, job.channels, tile.block_begin,
                             tile.block_end, job.flipped, packed);
        packed_chunk = chunk;
      }
      const T* source = static_cast<const T*>(job.source) + image * job.source_height * tile.source_row;
      T* target = static_cast<T*>(job.result) + image * job.target_height * tile.target_row;
      tile.rows = tile_span<AxisH, kTileH, Stride, Transposed>(task % row_tiles, job.pad_top,
                                                               job.source_height, job.target_height);
      for (int64_t column = 0; column < column_tiles; ++column) {
        tile.columns = tile_span<AxisW, kTileW, Stride, Transposed>(column, job.pad_left, job.source_width,
                                                                    job.target_width);
        tile.source = source + tile.rows.source * tile.source_row + tile.columns.source * tile.pixel;
        tile.target = target + tile.rows.target * tile.target_row + tile.columns.target * tile.pixel;
        dispatch(tile);
      }
    }
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
