// What is fixed when the kernel is compiled.
#pragma once

namespace convx::inverted_residual {

// The depthwise stage: a thread makes strip_rows x strip_columns results of two channels, in registers.
// The project stage: a warp holds tiles_down x tiles_across tiles of 16 pixels by 8 output channels.
// The expand stage: a warp makes expand_tiles tiles of 16 pixels by 16 channels with one read of the filters.
struct Shape {
  int strip_rows, strip_columns, tiles_down, tiles_across, expand_tiles;
  int threads;  // the most of a block
  // Whether blocks of a cluster can share a tile, a small batch's need, and whether a network's first
  // convolution can be the expand stage: the code costs the others registers.
  bool shares, patches;
  bool takes_float;  // its sums leave registers for the two parts of float32
};

constexpr int kMostOfPatch = 32;  // values that a first convolution's filter meets
constexpr int kMostRing = 6;      // chunks of filters in shared memory

constexpr int kShapeCount = 6;
// By stride - 1. Rows and columns of 7 fit the maps of networks for images of 224 x 224.
constexpr Shape kShapes[2][kShapeCount] = {
    {{7, 2, 4, 4, 2, 256, false, true, true},
     {4, 2, 2, 4, 2, 384, false, false, false},
     {7, 2, 2, 4, 2, 384, false, false, false},
     {7, 1, 1, 4, 2, 512, true, true, true},
     {7, 1, 1, 10, 1, 384, false, false, true},
     {2, 1, 1, 2, 1, 512, true, false, true}},
    {{4, 1, 4, 4, 2, 256, false, false, true},
     {4, 1, 1, 4, 2, 512, false, true, false},
     {7, 1, 2, 4, 2, 384, false, false, false},
     {4, 1, 2, 4, 2, 384, true, true, true},
     {7, 1, 1, 10, 1, 384, false, false, true},
     {1, 1, 1, 2, 1, 512, true, false, true}},
};

// 25 taps are as many registers: strips are shorter then.
constexpr int strip_rows(const Shape& shape, int filter) {
  return filter == 3 ? shape.strip_rows : (shape.strip_rows + 1) / 2;
}

// Both activations inside the block.
enum class Inside { relu, hardswish, silu };  // relu: relu6 too

// One kernel of these.
template <int Filter, int Stride, int At, Inside Activation>
struct FormOf {
  static constexpr Inside kInside = Activation;
  static constexpr int kFilter = Filter, kStride = Stride;
  static constexpr Shape kShape = kShapes[Stride - 1][At];
  static constexpr int kStripRows = strip_rows(kShape, Filter);
};

}  // namespace convx::inverted_residual
