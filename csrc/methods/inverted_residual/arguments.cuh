// What the kernel is told, and which part of the image a block of it reads.
#pragma once
#include <algorithm>

#include "methods/inverted_residual/filters.cuh"
#include "methods/inverted_residual/shape.h"
#include "platform/gpu/platform.h"
#include "problem/epilogue.h"

namespace convx::inverted_residual {

// A value of a patch of the source: its row and column, and elements from the patch's first value.
struct PatchValue {
  int16_t row, column;
  int place;
};

// Sizes are in elements, pitches and places in shared memory (…_at) in bytes; see geometry.h.
template <class T>
struct Arguments {
  static constexpr bool kMayHaveOneChunk = true;  // the ring of filters

  const T* source;
  const unsigned char* filters;
  const float* bias;
  T* result;
  bool has_residual;  // the source, which has the result's size
  Activation activation, output_activation;
  int channels, depth_steps, chunk_steps;                             // of kStepBytes
  int height, width, out_height, out_width, out_channels, out_pairs;  // the first two of the expanded tensor
  // Of a network's first convolution, whose products are of patches of the source; one tap: of its pixels.
  int taps, patch_stride, source_height, source_width, row_step, pixel_step;
  PatchValue patch[kMostOfPatch];
  int tile_height, tile_width, window_width;
  FastDivide tiles, tiles_across, by_tile_width, by_pieces, by_strips_across;
  int pieces;                             // of 16 bytes that a pixel has in shared memory
  int strips;                             // of the depthwise stage, in a tile
  int expanded_channels, chunks, chunk;   // chunk: channels of one
  FastDivide by_pairs, by_channel_pairs;  // of tiles, and of channels, that a chunk has
  int strip_step;                         // strips that a block's threads filter at once
  int window_tiles, result_tiles, warps_down;
  FastDivide by_project_across;
  int splits;  // warps that share the depth of a pair of tiles
  int expand_bias_at, depthwise_at, project_at, non_finite_at, chunk_bytes;
  int source_pitch, window_pitch, filtered_pitch;
  int window_at, window_step, filtered_at, filtered_step, ring_at, places_at, barriers_at, exchange_at;
  int windows_bytes;
  int ring, ring_bytes, ahead;
  FastDivide by_ranks;  // blocks of a cluster
  int rank_chunks;
};

template <class T, class Form>
CONVX_DEVICE Share share_of(const Arguments<T>& a, uint32_t block) {
  if (!Form::kShape.shares) return {0, 0, a.chunks};
  const int rank = static_cast<int>(a.by_ranks.remainder(block)), first = rank * a.rank_chunks;
  return {rank, first, min(a.rank_chunks, a.chunks - first)};
}

// The pixels of an image that a tile's results are made of; those outside it stay zero.
struct Window {
  int image, tile_row, tile_column;  // of the first result
  int row, column;                   // of the first pixel inside the image
  int height, width;                 // of the window
  int rows, columns, count;          // pixels inside the image
  int row_in_window, column_in_window;
};

template <class T, class Form>
CONVX_DEVICE Window window_of(const Arguments<T>& a, uint32_t block) {
  constexpr int Filter = Form::kFilter, Stride = Form::kStride;
  Window w;
  const uint32_t place = Form::kShape.shares ? a.by_ranks.quotient(block) : block;
  w.image = static_cast<int>(a.tiles.quotient(place));
  const uint32_t tile = a.tiles.remainder(place);
  w.tile_row = static_cast<int>(a.tiles_across.quotient(tile)) * a.tile_height;
  w.tile_column = static_cast<int>(a.tiles_across.remainder(tile)) * a.tile_width;
  w.height = (a.tile_height - 1) * Stride + Filter, w.width = a.window_width;
  const int top = w.tile_row * Stride - Filter / 2, left = w.tile_column * Stride - Filter / 2;
  w.row = max(top, 0), w.column = max(left, 0);
  w.rows = min(top + w.height, a.height) - w.row;
  w.columns = min(left + w.width, a.width) - w.column;
  w.count = w.rows * w.columns;
  w.row_in_window = w.row - top, w.column_in_window = w.column - left;
  return w;
}

// Of a pixel inside the image: elements from the image's first one, and bytes from the window's first one, -1
// behind the last pixel.
struct Place {
  int source, window;
};

template <class T>
CONVX_DEVICE void list_places(const Arguments<T>& a, const Window& w, Place* places) {
  for (int pixel = threadIdx.x; pixel < a.window_tiles * 16; pixel += blockDim.x) {
    Place place = {0, -1};
    if (pixel < w.count) {
      const int row = pixel / w.columns, column = pixel - row * w.columns;
      place.source = ((w.row + row) * a.width + w.column + column) * a.channels;
      place.window = ((w.row_in_window + row) * w.width + w.column_in_window + column) * a.window_pitch;
    }
    places[pixel] = place;
  }
}

template <class T>
CONVX_DEVICE void clear_windows(const Arguments<T>& a, unsigned char* windows) {
  for (int at = threadIdx.x * 16; at < a.windows_bytes; at += blockDim.x * 16) {
    *reinterpret_cast<Vector<float, 4>*>(windows + at) = {};
  }
}

// The window's pixels, one after the other; zeros behind the last channel and the last pixel.
template <class T>
CONVX_DEVICE void fetch_source(const Arguments<T>& a, const Window& w, unsigned char* shared) {
  constexpr int kValues = 16 / sizeof(T);
  const T* const image = a.source + static_cast<int64_t>(w.image) * a.height * a.width * a.channels;
  const Place* const places = reinterpret_cast<const Place*>(shared + a.places_at);
  for (int at = threadIdx.x; at < a.window_tiles * 16 * a.pieces; at += blockDim.x) {
    const int pixel = static_cast<int>(a.by_pieces.quotient(at)), piece = at - pixel * a.pieces;
    const bool is_there = pixel < w.count && piece * kValues < a.channels;
    const T* const from = is_there ? image + places[pixel].source + piece * kValues : a.source;
    copy_async<16>(shared + pixel * a.source_pitch + piece * 16, from, is_there ? 16 : 0);
  }
}

}  // namespace convx::inverted_residual
