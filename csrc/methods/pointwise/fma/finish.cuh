// From a thread's sums to results: epilogue and stores.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/pointwise/fma/block.cuh"
#include "methods/pointwise/staged.cuh"

namespace convx::pointwise::fma {

struct Shape {
  int rows, columns;  // of the result, for a group; columns are pixels but in the weight gradient
  int64_t depth;      // of a group; of a slice in the weight gradient
  uint32_t row_tiles, column_tiles, groups;
  OwnPixels a_map, result_map;
  OtherPixels b_map;
  int64_t a_channel_stride, b_channel_stride, result_channel_stride;
  bool a_pieces, b_pieces, result_pieces;  // of 16 bytes; results of 8 in 16 bits
};

// Writes Count values at neighbouring addresses, in pieces of kTaken where pieces is set.
template <class T, int Count>
CONVX_DEVICE void write_neighbours(T* result, const Accumulator<T>* values, bool pieces, int left) {
  if (pieces) {
    CONVX_UNROLL
    for (int i = 0; i < Count; i += kTaken<T>) {
      if (i >= left) break;
      Vector<T, kTaken<T>> piece;
      CONVX_UNROLL
      for (int j = 0; j < kTaken<T>; ++j) piece.element[j] = narrow<T>(values[i + j]);
      store<T, kTaken<T>>(result + i, piece);
    }
  } else {
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) {
      if (i < left) result[i] = narrow<T>(values[i]);
    }
  }
}

// Columns of a thread that no output was made from, in the input gradient: their results are zero even where
// a filter is infinite.
template <class T, class Tile, Role Kind>
CONVX_DEVICE uint32_t columns_without_source(const Block<T, Tile, Kind>& block, const OtherPixels& map,
                                             uint32_t first_column) {
  uint32_t columns = 0;
  if (map.kind != OtherPixels::spread) return columns;
  CONVX_UNROLL
  for (int n = 0; n < Tile::kColumnsEach; ++n) {
    if (map.offset(first_column + block.column(n)) == kNoPixel) columns |= 1u << n;
  }
  return columns;
}

// Whether results that can't leave in pieces pass through shared memory, from where a warp stores neighbours
// end to end. float64's activations leave AMD's waves no scalar registers for it; its elements fill sectors
// half.
template <class T>
constexpr bool kStaged = sizeof(T) < 8;

// Epilogue and stores go row by row, in nhwc column by column, through one copy of their code: the sums move
// up after each.
template <class T, class Tile, Role Kind>
CONVX_DEVICE void write_results(Block<T, Tile, Kind>& block, const T* bias, const Finishing<T>& finishing,
                                T* result, const Shape& shape, uint32_t group, int first_row,
                                uint32_t first_column, uint32_t without_source, T* shared) {
  using A = Accumulator<T>;
  constexpr int kRows = Tile::kRowsEach, kColumns = Tile::kColumnsEach;
  A(&sum)[kRows][kColumns] = block.sum;
  CONVX_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    if (without_source >> n & 1) {
      CONVX_UNROLL
      for (int m = 0; m < kRows; ++m) sum[m][n] = A(0);
    }
  }
  int64_t group_row = static_cast<int64_t>(group) * shape.rows, channel_stride = shape.result_channel_stride;
  int rows = shape.rows;
  keep_per_lane(group_row);
  keep_per_lane(channel_stride);
  keep_per_lane(rows);
  if constexpr (Kind == kNchw) {
    constexpr int kEach = kStaged<T> ? kTaken<T> : 1;  // columns of an offset
    int64_t offset[kColumns / kEach];
    CONVX_UNROLL
    for (int n = 0; n < kColumns; n += kEach) {
      offset[n / kEach] = shape.result_map.offset(first_column + block.column(n));
    }
    if (kStaged<T> && !shape.result_pieces) block_barrier();  // the stages' memory is used anew
    CONVX_NO_UNROLL
    for (int turn = 0; turn < kRows; ++turn) {
      const int row = first_row + block.row(turn);
      if (row < rows) {
        A shift = A(0);
        if (bias != nullptr) shift = widen(bias[group_row + row]);
        CONVX_UNROLL
        for (int n = 0; n < kColumns; ++n) sum[0][n] += shift;
        T* const plane = result + (group_row + row) * channel_stride;
        finish(
            sum[0], finishing, [&](int) { return group_row + row; },
            [&](T(&residuals)[kColumns]) {
              CONVX_UNROLL
              for (int n = 0; n < kColumns; n += kTaken<T>) {
                T piece[kTaken<T>] = {};
                if (shape.result_pieces) {
                  const int64_t at = offset[n / kEach];
                  if (at >= 0) read_residuals(finishing, plane + at, piece);
                } else {
                  CONVX_UNROLL
                  for (int j = 0; j < kTaken<T>; ++j) {
                    const int64_t at = kEach == 1
                                           ? offset[(n + j) / kEach]
                                           : shape.result_map.offset(first_column + block.column(n + j));
                    if (at >= 0) piece[j] = *residual_of(finishing, plane + at);
                  }
                }
                CONVX_UNROLL
                for (int j = 0; j < kTaken<T>; ++j) residuals[n + j] = piece[j];
              }
            });
        T* const staged = shared + block.row(turn) * Tile::kColumns;
        CONVX_UNROLL
        for (int n = 0; n < kColumns; n += kTaken<T>) {
          if (shape.result_pieces) {
            if (offset[n / kEach] >= 0) {
              write_neighbours<T, kTaken<T>>(plane + offset[n / kEach], sum[0] + n, true, kTaken<T>);
            }
          } else if constexpr (kStaged<T>) {
            write_neighbours<T, kTaken<T>>(staged + block.column(n), sum[0] + n, true, kTaken<T>);
          } else {
            CONVX_UNROLL
            for (int j = 0; j < kTaken<T>; ++j) {
              if (offset[n + j] >= 0) plane[offset[n + j]] = narrow<T>(sum[0][n + j]);
            }
          }
        }
      }
      CONVX_UNROLL
      for (int m = 0; m + 1 < kRows; ++m) {
        CONVX_UNROLL
        for (int n = 0; n < kColumns; ++n) sum[m][n] = sum[m + 1][n];
      }
    }
    if constexpr (kStaged<T>) {
      if (!shape.result_pieces) {
        block_barrier();
        const int left = rows - first_row;
        store_staged<Tile::kColumns, Tile::kColumns, Tile::kThreads>(
            shared, result + (group_row + first_row) * channel_stride,
            left < Tile::kRows ? left : Tile::kRows, channel_stride,
            [&](int column) { return shape.result_map.offset(first_column + column); },
            [](int) { return false; });
      }
    }
  } else {
    int64_t offset[kColumns];
    CONVX_UNROLL
    for (int n = 0; n < kColumns; ++n) offset[n] = shape.result_map.offset(first_column + block.column(n));
    const int row = first_row + block.row(0), left = rows - row;
    A shift[kRows];
    CONVX_UNROLL
    for (int m = 0; m < kRows; ++m) {
      shift[m] = bias != nullptr && m < left ? widen(bias[group_row + row + m]) : A(0);
    }
    CONVX_NO_UNROLL
    for (int turn = 0; turn < kColumns; ++turn) {
      if (offset[0] >= 0) {
        A values[kRows];
        CONVX_UNROLL
        for (int m = 0; m < kRows; ++m) values[m] = sum[m][0] + shift[m];
        T* const place = result + offset[0] + group_row + row;
        finish(
            values, finishing, [&](int m) { return group_row + min(row + m, rows - 1); },
            [&](T(&residuals)[kRows]) { read_residuals(finishing, place, 0, left, residuals); });
        write_neighbours<T, kRows>(place, values, shape.result_pieces, left);
      }
      CONVX_UNROLL
      for (int n = 0; n + 1 < kColumns; ++n) {
        offset[n] = offset[n + 1];
        CONVX_UNROLL
        for (int m = 0; m < kRows; ++m) sum[m][n] = sum[m][n + 1];
      }
    }
  }
}

}  // namespace convx::pointwise::fma
