// What the GPU kernels are given.
#pragma once
#include "methods/epilogue.h"
#include "platform/gpu/fast_divide.h"
#include "problem/problem.h"

namespace convx::hntmp {

// What every kernel reads before its first copy comes first: a block waits for each line of its parameters.
template <class T, class A>
struct Arguments {
  const T* source;
  const T* weight;       // in blocks of the order "crsk block_channels"
  int64_t source_plane;  // elements
  FastDivide tiles, tiles_across, splits, channel_blocks, groups;
  int source_channels, source_height, source_width, top, left;  // channels of a group
  int slots, slots_log2, block_channels, weight_elements;  // the last: of one source channel in one block
  int channel_stride, weight_offset, stage_bytes;
  // Windows known at run time.
  int window_positions, filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  FastDivide window_width;
  // The results.
  T* result;
  A* partial;  // sums of each split, instead of the result; null where there is one split
  const T* bias;
  int64_t result_plane, results;  // elements of a plane; of the whole result
  int result_channels, result_height, result_width;
  Finishing<T> finishing;
};

}  // namespace convx::hntmp
