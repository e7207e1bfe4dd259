// The kernels of the product on the arithmetic units, for results and for weight gradients.
#pragma once
#include "methods/pointwise/fma/finish.cuh"
#include "platform/gpu/overlap.h"

namespace convx::pointwise::fma {

// b's columns are pixels, a's rows are filters [groups][rows][depth].
template <class T, class Tile, Role Kind>
CONVX_KERNEL(Tile::kThreads, 1)
multiply_kernel(const T* filters, const T* source, const T* bias, T* result, Shape shape,
                Finishing<T> finishing) {
  CONVX_DYNAMIC_SHARED(memory);
  T* const shared = reinterpret_cast<T*>(memory);
  const int thread = threadIdx.x;
  const uint32_t row_tile = blockIdx.x % shape.row_tiles, rest = blockIdx.x / shape.row_tiles;
  const uint32_t column_tile = rest % shape.column_tiles, group = rest / shape.column_tiles;
  int first_row = static_cast<int>(row_tile) * Tile::kRows;
  uint32_t first_column = column_tile * Tile::kColumns;
  keep_per_lane(first_row);
  keep_per_lane(first_column);
  const int depth = static_cast<int>(shape.depth);
  int rows_left = shape.rows - first_row;
  keep_per_lane(rows_left);

  const auto filter = [=](int row) { return row < rows_left ? static_cast<int64_t>(row) * depth : kNoPixel; };
  RowLoader<T, Tile::kRows, Tile::kThreads> a(
      filters + (static_cast<int64_t>(group) * shape.rows + first_row) * depth, filter, depth, shape.a_pieces,
      thread);
  const T* const group_source = source + static_cast<int64_t>(group) * depth * shape.b_channel_stride;
  Block<T, Tile, Kind> block(thread);
  const int chunks = (depth + kDepth<T> - 1) / kDepth<T>;
  const uint32_t without_source = columns_without_source(block, shape.b_map, first_column);
  take_turn();
  if constexpr (Kind == kNchw) {
    PlaneLoader<T, Tile::kColumns, Tile::kThreads> b(group_source, shape.b_map, first_column, depth,
                                                     shape.b_channel_stride, shape.b_pieces, thread);
    block.multiply(shared, a, b, 0, chunks);
  } else {
    const auto pixel = [=, &shape](int column) { return shape.b_map.offset(first_column + column); };
    RowLoader<T, Tile::kColumns, Tile::kThreads> b(group_source, pixel, depth, shape.b_pieces, thread);
    block.multiply(shared, a, b, 0, chunks);
  }
  write_results(block, bias, finishing, result, shape, group, first_row, first_column, without_source,
                shared);
}

// partial[slice][group][rows][columns]: a slice sums over shape.depth of the output's pixels.
template <class T, class Tile, Role Kind>
CONVX_KERNEL(Tile::kThreads, 1)
weight_kernel(const T* output_grad, const T* input, Accumulator<T>* partial, Shape shape) {
  CONVX_DYNAMIC_SHARED(memory);
  T* const shared = reinterpret_cast<T*>(memory);
  const int thread = threadIdx.x;
  const uint32_t row_tile = blockIdx.x % shape.row_tiles;
  uint32_t rest = blockIdx.x / shape.row_tiles;
  const uint32_t column_tile = rest % shape.column_tiles;
  rest /= shape.column_tiles;
  const uint32_t group = rest % shape.groups, slice = rest / shape.groups;
  int first_row = static_cast<int>(row_tile) * Tile::kRows;
  int first_column = static_cast<int>(column_tile) * Tile::kColumns;
  keep_per_lane(first_row);
  keep_per_lane(first_column);
  int rows = shape.rows - first_row, columns = shape.columns - first_column;
  keep_per_lane(rows);
  keep_per_lane(columns);
  const T* const a_source =
      output_grad + (static_cast<int64_t>(group) * shape.rows + first_row) * shape.a_channel_stride;
  const T* const b_source =
      input + (static_cast<int64_t>(group) * shape.columns + first_column) * shape.b_channel_stride;

  Block<T, Tile, Kind> block(thread);
  const int64_t begin = slice * shape.depth, left = shape.a_map.pixels - begin;
  const int chunks =
      static_cast<int>(((left < shape.depth ? left : shape.depth) + kDepth<T> - 1) / kDepth<T>);
  take_turn();
  if constexpr (Kind == kNchwWeight) {
    PixelLoader<T, Tile::kRows, Tile::kThreads, OwnPixels> a(a_source, shape.a_map, rows,
                                                             shape.a_channel_stride, shape.a_pieces, thread);
    PixelLoader<T, Tile::kColumns, Tile::kThreads, OtherPixels> b(
        b_source, shape.b_map, columns, shape.b_channel_stride, shape.b_pieces, thread);
    block.multiply(shared, a, b, begin, chunks);
  } else {
    ChannelLoader<T, Tile::kRows, Tile::kThreads, OwnPixels> a(a_source, shape.a_map, rows, shape.a_pieces,
                                                               thread);
    ChannelLoader<T, Tile::kColumns, Tile::kThreads, OtherPixels> b(b_source, shape.b_map, columns,
                                                                    shape.b_pieces, thread);
    block.multiply(shared, a, b, begin, chunks);
  }
  Accumulator<T>* const target =
      partial + (static_cast<int64_t>(slice) * shape.groups + group) * shape.rows * shape.columns;
  CONVX_UNROLL
  for (int m = 0; m < Tile::kRowsEach; ++m) {
    CONVX_UNROLL
    for (int n = 0; n < Tile::kColumnsEach; ++n) {
      if (block.row(m) < rows && block.column(n) < columns) {
        target[static_cast<int64_t>(first_row + block.row(m)) * shape.columns + first_column +
               block.column(n)] = block.sum[m][n];
      }
    }
  }
}

}  // namespace convx::pointwise::fma
