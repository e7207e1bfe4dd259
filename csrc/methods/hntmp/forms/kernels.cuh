// Algorithms 1 and 2 of the HNTMP paper, line by line, but for the barrier before a tile is overwritten,
// which the listings leave out, and the tests for what lies outside of the image, which they ignore.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/hntmp/forms/geometry.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/overlap.h"

namespace convx::hntmp::forms {

struct Arguments {
  const float *source, *weight, *bias;
  float* result;
  int source_channels, result_channels, source_height, source_width, result_height, result_width, top, left;
  FastDivide tiles, tiles_across, channel_blocks;
  Finishing<float> finishing;
};

// Where a block works.
struct Place {
  int64_t image;
  int channel_block, row, column;
};

CONVX_DEVICE Place place_of(const Arguments& a, int rows, int columns) {
  Place place;
  const uint32_t rest = a.tiles.quotient(blockIdx.x), tile = a.tiles.remainder(blockIdx.x);
  place.row = static_cast<int>(a.tiles_across.quotient(tile)) * rows;
  place.column = static_cast<int>(a.tiles_across.remainder(tile)) * columns;
  place.image = a.channel_blocks.quotient(rest);
  place.channel_block = static_cast<int>(a.channel_blocks.remainder(rest));
  return place;
}

// A channel's tile with its halo, by all threads of the block.
template <int Height, int Width>
CONVX_DEVICE void stage_tile(const Arguments& a, const Place& place, const float* plane,
                             float (&tile)[Height * Width]) {
  for (int i = static_cast<int>(threadIdx.x); i < Height * Width; i += kThreads) {
    const int y = place.row - a.top + i / Width, x = place.column - a.left + i % Width;
    const bool inside = y >= 0 && y < a.source_height && x >= 0 && x < a.source_width;
    tile[i] = inside ? plane[static_cast<int64_t>(y) * a.source_width + x] : 0.0f;
  }
}

// Every channel of the source in turn, its tile in shared memory: body(channel).
template <int Height, int Width, class Body>
CONVX_DEVICE void sweep_channels(const Arguments& a, const Place& place, float (&tile)[Height * Width],
                                 const Body& body) {
  const int64_t plane = static_cast<int64_t>(a.source_height) * a.source_width;
  const float* source = a.source + place.image * a.source_channels * plane;
  CONVX_NO_UNROLL
  for (int channel = 0; channel < a.source_channels; ++channel) {
    block_barrier();  // the tile before has been used
    stage_tile<Height, Width>(a, place, source, tile);
    block_barrier();
    body(channel);
    source += plane;
  }
}

CONVX_DEVICE void write_result(const Arguments& a, const Place& place, int channel, int y, int x, float sum) {
  if (channel >= a.result_channels || y >= a.result_height || x >= a.result_width) return;
  const int64_t row = (place.image * a.result_channels + channel) * a.result_height + y;
  float* const to = a.result + row * a.result_width + x;
  *to = finished(sum + bias_of(a.bias, channel), a.finishing, channel, to);
}

// Algorithm 2. weight: in blocks of the order "crsk 64".
template <int Side, int Rows, int Columns>
CONVX_KERNEL(kThreads, 1)
published_kernel(Arguments a) {
  constexpr int kHeight = Rows + Side - 1, kWidth = Columns + Side - 1;
  CONVX_SHARED(float, tile, [kHeight * kWidth]);
  take_turn();
  const Place place = place_of(a, Rows, Columns);
  const float* weight =
      a.weight + static_cast<int64_t>(place.channel_block) * a.source_channels * (Side * Side * kThreads) +
      threadIdx.x;
  float sum[Rows][Columns] = {};
  sweep_channels<kHeight, kWidth>(a, place, tile, [&](int) {
    CONVX_UNROLL
    for (int tap = 0; tap < Side * Side; ++tap) {
      const float filter = weight[tap * kThreads];
      CONVX_UNROLL
      for (int y = 0; y < Rows; ++y) {
        CONVX_UNROLL
        for (int x = 0; x < Columns; ++x) {
          sum[y][x] = multiply_add(filter, tile[(y + tap / Side) * kWidth + x + tap % Side], sum[y][x]);
        }
      }
    }
    weight += Side * Side * kThreads;
  });
  const int channel = place.channel_block * kThreads + static_cast<int>(threadIdx.x);
  CONVX_UNROLL
  for (int y = 0; y < Rows; ++y) {
    CONVX_UNROLL
    for (int x = 0; x < Columns; ++x) {
      write_result(a, place, channel, place.row + y, place.column + x, sum[y][x]);
    }
  }
}

// Algorithm 1. weight: in torch's order.
template <int Side, bool Cached>
CONVX_KERNEL(kThreads, 1)
direct_kernel(Arguments a) {
  constexpr int kRows = kDirectShape.rows, kColumns = kDirectShape.columns;
  constexpr int kChannels = kDirectShape.channels, kTaps = Side * Side;
  constexpr int kHeight = kRows + Side - 1, kWidth = kColumns + Side - 1;
  static_assert(kRows * kColumns == kThreads, "a thread has a pixel");
  CONVX_SHARED(float, tile, [kHeight * kWidth]);
  CONVX_SHARED(float, cache, [kTaps]);
  take_turn();
  const Place place = place_of(a, kRows, kColumns);
  const int own = static_cast<int>(threadIdx.x), y = own / kColumns, x = own % kColumns;
  const int first = place.channel_block * kChannels;
  const int64_t filter_elements = static_cast<int64_t>(a.source_channels) * kTaps;
  float sum[kChannels] = {};
  sweep_channels<kHeight, kWidth>(a, place, tile, [&](int channel) {
    CONVX_UNROLL
    for (int k = 0; k < kChannels; ++k) {
      const float* filter = a.weight + min(first + k, a.result_channels - 1) * filter_elements +
                            static_cast<int64_t>(channel) * kTaps;
      if constexpr (Cached) {
        block_barrier();  // the filter before has been used
        if (own < kTaps) cache[own] = filter[own];
        block_barrier();
        filter = cache;
      }
      CONVX_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) {
        sum[k] = multiply_add(tile[(y + tap / Side) * kWidth + x + tap % Side], filter[tap], sum[k]);
      }
    }
  });
  CONVX_UNROLL
  for (int k = 0; k < kChannels; ++k)
    write_result(a, place, first + k, place.row + y, place.column + x, sum[k]);
}

}  // namespace convx::hntmp::forms
