// What is fixed when the kernel is compiled.
#pragma once
#include "methods/inverted_residual/shape.h"

namespace convx::inverted_residual::banded {

// A product's depth is a row of the window: 16 columns, of which each result takes those under its filter. It
// makes eight rows of results.
constexpr int kWindowColumns = 16, kGroupRows = 8, kRowBytes = 32;

// Results of a tile: those whose columns are all in the window; of stride 2 no more than a fragment has.
constexpr int tile_width(int filter, int stride) {
  return (kWindowColumns - filter) / stride + 1;
}

// depth_steps: of 16 channels of the source, which is in registers. chunk: expanded channels at a time. A
// warp holds tiles_down x pairs tiles of 16 results by 16 output channels.
struct Shape {
  int depth_steps, chunk, tiles_down, pairs;
  int most_rows;  // of a tile's results
  int blocks;     // of eight warps that a multiprocessor is to have room for
};

constexpr int kShapeCount = 4;
// By stride - 1.
constexpr Shape kShapes[2][kShapeCount] = {
    {{2, 32, 2, 2, 14, 2}, {4, 32, 2, 3, 14, 1}, {4, 64, 2, 3, 7, 1}, {6, 64, 2, 3, 7, 1}},
    {{1, 32, 1, 2, 14, 2}, {2, 32, 1, 2, 14, 2}, {2, 32, 1, 4, 14, 1}, {6, 32, 1, 6, 7, 1}},
};

// Of tiles of one group of rows two channels are filtered at a time.
constexpr bool is_flat(const Shape& shape, int stride) {
  return stride == 1 && shape.most_rows <= kGroupRows;
}
// Of a 5 x 5 filter, whose bands take three times the room and most of whose columns are its neighbours', the
// kernels for any tile are faster on small images.
constexpr bool has_filter(const Shape& shape, int filter) {
  return filter == 3 || shape.most_rows > kGroupRows;
}
constexpr int window_rows(const Shape& shape, int filter, int stride) {
  return (shape.most_rows - 1) * stride + filter;
}
// A warp's of the window, and how many warps that makes.
constexpr int rows_of_warp(const Shape& shape, int stride) {
  return (shape.most_rows > kGroupRows ? 2 : 1) * stride;
}
constexpr int warps_of(const Shape& shape, int filter, int stride) {
  const int rows = rows_of_warp(shape, stride);
  return (window_rows(shape, filter, stride) + rows - 1) / rows;
}

// Bytes of a channel in shared memory: rows of its window, and its results. 8 rows of 16 bytes that are read
// or written at once lie in different banks, whether they are rows of a channel (half_of in arguments.cuh) or
// the same row of eight channels.
constexpr int window_pitch(const Shape& shape, int filter, int stride) {
  return warps_of(shape, filter, stride) * rows_of_warp(shape, stride) * kRowBytes + 16;
}
constexpr int filtered_pitch(const Shape& shape, int stride) {
  return (is_flat(shape, stride) || stride == 2 ? 1 : 2) * kGroupRows * kRowBytes + 16;
}

// A network's first convolution can be the first product of this shape alone.
constexpr bool has_patches(int filter, int stride, int at) {
  return filter == 3 && stride == 1 && at == 0;
}

// What becomes of filtered chunks: a product, or they and the sums of their planes go to memory, of which
// squeeze-and-excitation makes gates (excited/).
enum class End { project, filtered };

// A product's sums are registers, of which pixels may have more where there are none. Of those that have more
// channels the planes are too many for what comes after them.
constexpr bool has_end(End end, int filter, int stride, int at) {
  const Shape& shape = kShapes[stride - 1][at];
  if (!has_filter(shape, filter)) return false;
  return end == End::project || (shape.most_rows > kGroupRows ? at < 2 : stride == 2);
}

// One kernel of these. Bounded: the activation is, and what is expanded of finite values is finite. Patches:
// a network's first convolution expands.
template <End kOf, int Filter, int Stride, int At, Inside Activation, bool Bounded, bool Patches>
struct FormOf {
  static constexpr End kEnd = kOf;
  static constexpr bool kPatches = Patches;
  static constexpr Inside kInside = Activation;
  static constexpr bool kBounded = Bounded;
  static constexpr int kFilter = Filter, kStride = Stride;
  static constexpr Shape kShape = kShapes[Stride - 1][At];
  static constexpr int kTileWidth = tile_width(Filter, Stride);
  static constexpr int kRows = rows_of_warp(kShape, Stride), kWarps = warps_of(kShape, Filter, Stride);
  static constexpr int kWindowRows = kRows * kWarps;
  static constexpr int kWindowPitch = window_pitch(kShape, Filter, Stride);
  static constexpr int kFilteredPitch = filtered_pitch(kShape, Stride);
  static constexpr int kChunk = kShape.chunk;
  static constexpr int kWindowBytes = kChunk * kWindowPitch;
  static constexpr int kFilteredBytes = kChunk * kFilteredPitch;
  static constexpr int kBlocks = kWarps > 8 ? 1 : kEnd == End::filtered && Stride == 2 ? 2 : kShape.blocks;
  static constexpr int kChunkPairs = kChunk / 16;
  // Of flat tiles the band has the place of filters and results' columns are neighbours of columns; of tall
  // ones that of pixels, and rows are.
  static constexpr bool kIsFlat = is_flat(kShape, Stride);
  static constexpr int kNear = kIsFlat || Stride == 2 ? 8 : 16;
};

}  // namespace convx::inverted_residual::banded
