// How the tile kernel shares out a sweep, for the planner and the launcher.
//
// A block owns a tile of results: kFilterLanes * filters filters by lanes / kFilterLanes strips of
// neighbouring pixels of a row. Its warps take turns at chunks of channels: each stages the chunk's source
// window and filter values in a ring of its own and multiplies them out; the warps' sums are added at the
// end.
#pragma once
#include <algorithm>

#include "plan/method.h"
#include "problem/device.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::cuconv::tile {

constexpr int kFilterLanes = 8;
// Of a block. It leaves a thread 128 registers, one with eight filters 168, and those of warps of 64 lanes
// 256.
constexpr int most_threads(int64_t lanes, int64_t filters) {
  return lanes == 64 ? 256 : filters == 8 ? 384 : 512;
}
constexpr int kFlatChunk = 8;  // channels of a stage where planes are rows; a multiple of four
// Elements of a staged channel there: whole pieces of four, wherever in the first the pixels begin.
constexpr int flat_pitch(int block_pixels) {
  return (block_pixels + 3 + 3) / 4 * 4;
}

// Filters and neighbouring pixels of a thread. A value loaded from shared memory costs about as much as a
// multiply-add, so a thread wants many of both; 7 divides the widths of most networks and, as an odd stride
// from lane to lane, meets no bank conflict.
struct Shape {
  int filters, pixels, registers;  // registers: of a thread, about
};
constexpr Shape kShapes[] = {{2, 7, 96}, {4, 7, 128}, {4, 14, 128}, {8, 7, 168}};
// float64 and 16 bits have the first two alone.
constexpr bool has_shape(const Shape& shape, DType dtype) {
  return dtype == DType::float32 || shape.filters * shape.pixels <= 28;
}

struct Tiling {
  int64_t lanes, filters, pixels, warps;
  int64_t chunk;          // channels of a stage
  int64_t stages;         // of a warp's ring
  int64_t rows, columns;  // taps of a window; several windows where the filter is large or wide-spread
  int64_t across;         // strips of a tile side by side, the others below
  int64_t planes;         // of partial sums; 1 writes results
  int64_t planes_are_taps;
  int64_t part;  // chunks that a warp adds up before it puts the sums aside; 0: all
};

// Products of float32 that are added one after another. The largest error of 20000 sums of 825 random
// products is 1.2e-4 in one chain and 3e-5 in parts, of 2400 products 3.3e-4 and 5.4e-5; torch's are small
// where it takes an FFT.
constexpr int64_t kLongestChain = 128, kPartProducts = 64;

inline Tiling tiling_of(const Plan& plan) {
  return {plan["lanes"],  plan["filters"], plan["pixels"],          plan["warps"],
          plan["chunk"],  plan["stages"],  plan["window_rows"],     plan["window_columns"],
          plan["across"], plan["planes"],  plan["planes_are_taps"], plan["part"]};
}

// Tiling::part of one that has the others.
inline int64_t part_of(const Sweep& s, const Tiling& t, DType dtype) {
  if (dtype != DType::float32 || t.planes_are_taps != 0) return 0;
  const int64_t chunks = divide_up(divide_up(s.source_channels, t.chunk), t.planes * t.warps);
  if (chunks * t.chunk * s.taps() <= kLongestChain) return 0;
  return divide_up(kPartProducts, t.chunk * t.rows * t.columns);
}

struct Geometry {
  bool flat;
  int64_t block_filters, block_pixels, down;
  // A channel of a stage: window_height rows of pitch elements, the columns dealt out by their residue modulo
  // the stride, so that neighbouring results always read neighbours. Flat: one row, whose beginning is that
  // of a 16-byte piece.
  int64_t row_step, column_step, residues, residue_pitch, pitch, window_height, positions, channel_pitch;
  int64_t reduction, weight_pitch, stage;  // products a result takes from a stage; elements
  int64_t windows_down, windows_across;
  int64_t tiles_down, tiles_across, filter_blocks, chunks, blocks;
  int64_t table_bytes, shared_bytes;

  int64_t windows() const { return windows_down * windows_across; }
};

inline Geometry geometry_of(const Sweep& s, const Tiling& t, int64_t accumulator_bytes) {
  Geometry g{};
  const int64_t strips = t.lanes / kFilterLanes;
  g.flat = s.is_flat();
  g.block_filters = kFilterLanes * t.filters;
  g.block_pixels = strips * t.pixels;
  g.down = g.flat ? 1 : strips / t.across;
  g.windows_down = divide_up(s.filter_height, t.rows);
  g.windows_across = divide_up(s.filter_width, t.columns);
  g.reduction = t.chunk * t.rows * t.columns;
  // Four values are read at once; an odd number of fours from filter to filter meets no bank conflict.
  g.weight_pitch = round_up(g.reduction, 4) + (divide_up(g.reduction, 4) % 2 == 0 ? 4 : 0);
  if (g.flat) {
    g.channel_pitch = flat_pitch(static_cast<int>(g.block_pixels));
    g.positions = 0;
    g.tiles_down = 1;
    g.tiles_across = divide_up(s.result_plane(), g.block_pixels);
  } else {
    const int64_t width = t.across * t.pixels;
    // A single tap reads every stride-th element alone.
    g.row_step = t.rows == 1 ? s.stride_h : 1;
    g.column_step = s.stride_w;  // within a residue class
    g.residues = t.columns == 1 ? 1 : s.stride_w;
    g.residue_pitch =
        t.columns == 1 ? width
                       : divide_up((width - 1) * s.stride_w + (t.columns - 1) * s.dilation_w + 1, s.stride_w);
    g.window_height = t.rows == 1 ? g.down : (g.down - 1) * s.stride_h + (t.rows - 1) * s.dilation_h + 1;
    g.pitch = g.residues * g.residue_pitch;
    // Strips below one another in different banks.
    if (g.down > 1 && g.pitch * (t.rows == 1 ? 1 : s.stride_h) % 8 == 0) ++g.pitch;
    g.positions = g.channel_pitch = g.window_height * g.pitch;
    g.tiles_down = divide_up(s.result_height, g.down);
    g.tiles_across = divide_up(s.result_width, width);
  }
  g.stage = round_up(g.block_filters * g.weight_pitch + t.chunk * g.channel_pitch, 4);
  g.filter_blocks = divide_up(s.result_channels, g.block_filters);
  g.chunks = divide_up(s.source_channels, t.chunk);
  g.blocks = s.batch * g.tiles_down * g.tiles_across * t.planes * s.groups * g.filter_blocks;
  const int64_t tables = g.flat ? 0 : 2 * round_up(g.reduction, 4) + g.positions;
  g.table_bytes = round_up((g.block_pixels + tables) * 4, 16);
  // The warps' sums take the place of their rings, or follow them where parts are put there before.
  const int64_t sums = t.warps * g.block_filters * (g.block_pixels | 1), rings = t.warps * t.stages * g.stage;
  g.shared_bytes = g.table_bytes + (t.part > 0 ? rings + sums : std::max(rings, sums)) * accumulator_bytes;
  return g;
}

}  // namespace convx::cuconv::tile
