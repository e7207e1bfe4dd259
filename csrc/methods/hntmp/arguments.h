// What the GPU kernels are given.
#pragma once
#include "platform/fast_divide.h"
#include "problem/problem.h"

namespace convx::hntmp {

template <class T, class A>
struct Arguments {
  const T* source;
  const T* weight;  // in blocks of the order "crsk block_channels"
  const T* bias;
  T* result;
  A* partial;  // sums of each split, instead of the result; null where there is one split
  int64_t source_plane, result_plane, results;  // elements of a plane; of the whole result
  int source_channels, result_channels;         // of a group
  int source_height, source_width, result_height, result_width;
  int top, left, filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  int slots, slots_log2, block_channels, weight_elements;  // the last: of one source channel in one block
  int channel_stride, weight_offset, stage_bytes, window_positions;
  FastDivide window_width, tiles, tiles_across, splits, channel_blocks, groups;
  Activation activation;
};

}  // namespace convx::hntmp
