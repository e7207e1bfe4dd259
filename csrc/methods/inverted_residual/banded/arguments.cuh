// What the kernel is told, and where a block's tile lies.
#pragma once
#include "methods/inverted_residual/banded/geometry.h"
#include "methods/runs.cuh"
#include "platform/gpu/platform.h"
#include "problem/epilogue.h"

namespace convx::inverted_residual::banded {

// Of a network's first convolution; see patches.h. Sizes are in values, pitch in bytes.
struct PatchArguments {
  Runs runs;
  int stride, channels, height, line;  // line: of a row of the image
  int rows, pitch;
  FastDivide by_pieces;
};

// Sizes are in elements, places in shared memory (…_at) in bytes; see geometry.h.
template <class T>
struct Arguments {
  static constexpr bool kMayHaveOneChunk = false;
  const T* source;
  const unsigned char* filters;
  const float* bias;
  T* result;
  bool has_residual;  // the source, which has the result's size
  Activation activation, output_activation;
  int channels, height, width, out_height, out_width, out_channels, out_pairs;
  FastDivide by_ranks, tiles, tiles_across;  // by_ranks: blocks of a cluster
  int tile_height, expanded_channels, chunks, rank_chunks;
  int result_tiles, warps_down;
  int expand_bias_at, depthwise_at, depthwise_bias_at, project_at, non_finite_at, chunk_bytes;
  int ring_at, ring, ring_bytes, ahead, barriers_at, exchange_at;
  PatchArguments patches;
  float* plane_sums;  // of End::filtered: (tiles of all images, expanded channels)
};

// A block's tile of results, and the first pixel of its window, which may be outside the image.
struct Window {
  int image, tile_row, tile_column, top, left;
  int tile;  // among those of all images

  // Of results inside the image.
  template <class Arguments>
  CONVX_DEVICE int rows(const Arguments& a) const {
    return min(a.tile_height, a.out_height - tile_row);
  }
  template <class Form, class Arguments>
  CONVX_DEVICE int columns(const Arguments& a) const {
    return min(Form::kTileWidth, a.out_width - tile_column);
  }
};

template <class T, class Form>
CONVX_DEVICE Window window_of(const Arguments<T>& a, uint32_t block) {
  Window w;
  const uint32_t place = a.by_ranks.quotient(block);
  w.tile = static_cast<int>(place);
  w.image = static_cast<int>(a.tiles.quotient(place));
  const uint32_t tile = a.tiles.remainder(place);
  w.tile_row = static_cast<int>(a.tiles_across.quotient(tile)) * a.tile_height;
  w.tile_column = static_cast<int>(a.tiles_across.remainder(tile)) * Form::kTileWidth;
  w.top = w.tile_row * Form::kStride - Form::kFilter / 2;
  w.left = w.tile_column * Form::kStride - Form::kFilter / 2;
  return w;
}

// Rows of 32 bytes, of which eight neighbours begin in the same banks by fours: the halves of every second
// four change places.
CONVX_DEVICE int half_of(int row, int half) {
  return row * kRowBytes + (half ^ (row >> 2 & 1)) * 16;
}

// Of the window's rows those that strided results read at once are neighbours.
template <class Form>
CONVX_DEVICE int window_row(int row) {
  return Form::kStride == 1 ? row : (row & 1) * ((Form::kWindowRows + 1) / 2) + row / 2;
}

}  // namespace convx::inverted_residual::banded
