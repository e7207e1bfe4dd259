// What kernels are told that have lanes along the channels: sizes, and how units of work are shared out.
#pragma once
#include "platform/gpu/platform.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::depthwise::channels {

struct ChannelsShape {
  int channels, source_height, source_width, result_height, result_width;
  int padding_top, padding_left;
  int column_tiles, row_tiles;
  uint32_t blocks;  // of one slice
  // Units are batch * row_tiles, split evenly: the first longer_slices have one more than slice_units.
  uint32_t slice_units, longer_slices;
  bool turn_filter;
  FastDivide divide_vectors, divide_row_tiles,
      divide_blocks;        // by channels / Channels, by row_tiles, by blocks
  FastDivide filter_words;  // of all channels
};

// For tiles of so many result columns and rows, and lanes of so many channels.
inline ChannelsShape shape_of(const ConvProblem& problem, int64_t lane_channels, int columns, int rows,
                              int64_t slices, int threads) {
  const Sweep sweep = sweep_of(problem);
  ChannelsShape shape;
  shape.channels = static_cast<int>(problem.in_channels);
  shape.source_height = static_cast<int>(sweep.source_height);
  shape.source_width = static_cast<int>(sweep.source_width);
  shape.result_height = static_cast<int>(sweep.result_height);
  shape.result_width = static_cast<int>(sweep.result_width);
  shape.turn_filter = sweep.flipped;
  shape.padding_top = static_cast<int>(sweep.top);
  shape.padding_left = static_cast<int>(sweep.left);
  const int64_t hidden_rows = sweep.transposed ? sweep.top % sweep.stride_h : 0;
  const int64_t hidden_columns = sweep.transposed ? sweep.left % sweep.stride_w : 0;
  shape.row_tiles = static_cast<int>(divide_up(sweep.result_height + hidden_rows, rows));
  shape.column_tiles = static_cast<int>(divide_up(sweep.result_width + hidden_columns, columns));
  const int64_t units = problem.batch * shape.row_tiles, vectors = problem.in_channels / lane_channels;
  shape.slice_units = static_cast<uint32_t>(units / slices);
  shape.longer_slices = static_cast<uint32_t>(units % slices);
  shape.blocks = static_cast<uint32_t>(divide_up(vectors * shape.column_tiles, threads));
  shape.divide_vectors = divide_by(vectors);
  shape.divide_row_tiles = divide_by(shape.row_tiles);
  shape.divide_blocks = divide_by(shape.blocks);
  shape.filter_words = divide_by(vectors * sweep.taps());
  return shape;
}

}  // namespace convx::depthwise::channels
