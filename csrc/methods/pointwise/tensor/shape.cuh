// What the kernels of the tensor family are given beside their tensors.
#pragma once
#include "methods/pointwise/pixel_map.cuh"
#include "methods/pointwise/tensor/access.h"

namespace convx::pointwise::tensor {

struct Shape {
  int rows, depth;     // filters and channels of a group
  int steps, m_tiles;  // fragments of a group's channels and filters
  int plane;           // pixels of an image of the result
  int images;
  FastDivide row_tiles, row_tiles_of_groups;  // of a group, and of all
  uint32_t column_tiles, column_blocks;       // blocks share out the columns of a row of tiles
  uint32_t image_tiles;                       // of shifted rows: column tiles of an image
  int64_t source_elements;                    // of shifted rows: of the tensor, none beyond is read
  int source_stage_bytes;
  bool filters_stay;                  // in shared memory, while a block goes from tile to tile
  Access order;                       // of channels, by which the filters were packed
  bool source_pieces, result_pieces;  // of channels: rows allow reads of 16 bytes, stores of a lane's filters
  OtherPixels source;
  OwnPixels result;
  int64_t source_stride, result_stride;  // between channels
  int64_t filter_row, filter_depth;      // of the unpacked filters, for split
};

}  // namespace convx::pointwise::tensor
