// A product of matrices on the arithmetic units: both operands pass through a ring of stages in shared
// memory, a thread sums a tile of results in registers. Exact in the accumulator's type.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/pointwise/fma/loaders.cuh"
#include "platform/overlap.h"

namespace convx::pointwise::fma {

struct Shape {
  int rows, columns;  // of the result, for a group; columns are pixels but in the weight gradient
  int64_t depth;      // of a group; of a slice in the weight gradient
  uint32_t row_tiles, column_tiles, groups;
  OwnPixels a_map, result_map;
  OtherPixels b_map;
  int64_t a_channel_stride, b_channel_stride, result_channel_stride;
  bool a_pieces, b_pieces, result_pieces;  // of 16 bytes; results of 8 in 16 bits
  Activation activation;
};

// Elements of depth, or of neighbouring columns, that a thread takes from shared memory at once.
template <class T>
constexpr int kTaken = sizeof(T) == 8 ? 2 : 4;

template <class T, int Count>
CONVX_DEVICE void take(const T* shared, Accumulator<T>* values) {
  const Vector<T, Count> piece = *reinterpret_cast<const Vector<T, Count>*>(shared);
  CONVX_UNROLL
  for (int i = 0; i < Count; ++i) values[i] = widen(piece.element[i]);
}

template <class T, class Tile, Role Kind>
class Block {
 public:
  using A = Accumulator<T>;
  // Whether an operand's stage is [depth][rows].
  static constexpr bool kDeepA = Kind == kNhwcWeight, kDeepB = Kind == kNchw || Kind == kNhwcWeight;
  static constexpr int kSizeA = kDeepA ? kDepth<T> * Tile::kRows : Tile::kRows * kPitch<T>;
  static constexpr int kSizeB = kDeepB ? kDepth<T> * Tile::kColumns : Tile::kColumns * kPitch<T>;
  static constexpr int kSharedBytes = kStages * (kSizeA + kSizeB) * static_cast<int>(sizeof(T));

  CONVX_DEVICE explicit Block(int thread)
      : thread_row_(thread / Tile::kThreadColumns), thread_column_(thread % Tile::kThreadColumns) {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int n = 0; n < Tile::kColumnsEach; ++n) sum[m][n] = A(0);
    }
  }

  // Rows are neighbours; so are columns by kTaken of a [depth][columns] stage, which is read by vectors.
  CONVX_DEVICE int row(int m) const { return thread_row_ * Tile::kRowsEach + m; }
  CONVX_DEVICE int column(int n) const {
    if constexpr (!kDeepB) return thread_column_ + n * Tile::kThreadColumns;
    return (thread_column_ + n / kTaken<T> * Tile::kThreadColumns) * kTaken<T> + n % kTaken<T>;
  }

  template <class LoaderA, class LoaderB>
  CONVX_DEVICE void multiply(T* shared, LoaderA& a, LoaderB& b, int64_t begin, int chunks) {
    constexpr int kStage = kSizeA + kSizeB;
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < kStages - 1; ++chunk) {
      if (chunk < chunks) {
        a.load(shared + chunk * kStage, begin + chunk * kDepth<T>);
        b.load(shared + chunk * kStage + kSizeA, begin + chunk * kDepth<T>);
      }
      commit_copies();
    }
    int stage = 0, next = kStages - 1;
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait_copies<kStages - 2>();
      block_barrier();
      if (chunk + kStages - 1 < chunks) {
        const int64_t at = begin + static_cast<int64_t>(chunk + kStages - 1) * kDepth<T>;
        a.load(shared + next * kStage, at);
        b.load(shared + next * kStage + kSizeA, at);
      }
      commit_copies();
      add_stage(shared + stage * kStage, shared + stage * kStage + kSizeA);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      next = next + 1 == kStages ? 0 : next + 1;
    }
  }

  A sum[Tile::kRowsEach][Tile::kColumnsEach];

 private:
  CONVX_DEVICE void add_stage(const T* stage_a, const T* stage_b) {
    if constexpr ((kDeepA || kDeepB) && sizeof(T) > 2) {
      CONVX_UNROLL
      for (int depth = 0; depth < kDepth<T>; depth += kTaken<T>) add_depth(stage_a, stage_b, depth);
    } else {
      // Operands of [rows][depth], and those that are widened, take more registers than sums leave for
      // several steps at once.
      CONVX_NO_UNROLL
      for (int depth = 0; depth < kDepth<T>; depth += kTaken<T>) add_depth(stage_a, stage_b, depth);
    }
  }

  CONVX_DEVICE void add_depth(const T* stage_a, const T* stage_b, int depth) {
    A a[Tile::kRowsEach][kTaken<T>], b[Tile::kColumnsEach][kTaken<T>];
    take_operand<kDeepA, Tile::kRows, Tile::kRowsEach>(stage_a, depth, a, [&](int m) { return row(m); });
    take_operand<kDeepB, Tile::kColumns, Tile::kColumnsEach>(stage_b, depth, b,
                                                             [&](int n) { return column(n); });
    CONVX_UNROLL
    for (int d = 0; d < kTaken<T>; ++d) {
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        CONVX_UNROLL
        for (int n = 0; n < Tile::kColumnsEach; ++n) sum[m][n] = multiply_add(a[m][d], b[n][d], sum[m][n]);
      }
    }
  }

  template <bool Deep, int Extent, int Each, class Index>
  CONVX_DEVICE static void take_operand(const T* stage, int depth, A (&values)[Each][kTaken<T>],
                                        const Index& index) {
    if constexpr (!Deep) {
      CONVX_UNROLL
      for (int i = 0; i < Each; ++i) take<T, kTaken<T>>(stage + index(i) * kPitch<T> + depth, values[i]);
    } else {
      CONVX_UNROLL
      for (int d = 0; d < kTaken<T>; ++d) {
        CONVX_UNROLL
        for (int i = 0; i < Each; i += kTaken<T>) {
          A piece[kTaken<T>];
          take<T, kTaken<T>>(stage + (depth + d) * Extent + index(i), piece);
          CONVX_UNROLL
          for (int j = 0; j < kTaken<T>; ++j) values[i + j][d] = piece[j];
        }
      }
    }
  }

  int thread_row_, thread_column_;
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

// Epilogue and stores go row by row, in nhwc column by column, through one copy of their code: the sums move
// up after each.
template <class T, class Tile, Role Kind>
CONVX_DEVICE void write_results(Block<T, Tile, Kind>& block, const T* bias, T* result, const Shape& shape,
                                uint32_t group, int first_row, uint32_t first_column,
                                uint32_t without_source) {
  using A = Accumulator<T>;
  constexpr int kRows = Tile::kRowsEach, kColumns = Tile::kColumnsEach;
  A(&sum)[kRows][kColumns] = block.sum;
  int64_t offset[kColumns];
  CONVX_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    offset[n] = shape.result_map.offset(first_column + block.column(n));
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
    CONVX_NO_UNROLL
    for (int turn = 0; turn < kRows; ++turn) {
      const int row = first_row + block.row(turn);
      if (row < rows) {
        A shift = A(0);
        if (bias != nullptr) shift = widen(bias[group_row + row]);
        CONVX_UNROLL
        for (int n = 0; n < kColumns; ++n) sum[0][n] += shift;
        activate(sum[0], shape.activation);
        T* const plane = result + (group_row + row) * channel_stride;
        CONVX_UNROLL
        for (int n = 0; n < kColumns; n += kTaken<T>) {
          if (shape.result_pieces) {
            if (offset[n] >= 0)
              write_neighbours<T, kTaken<T>>(plane + offset[n], sum[0] + n, true, kTaken<T>);
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
  } else {
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
        activate(values, shape.activation);
        write_neighbours<T, kRows>(result + offset[0] + group_row + row, values, shape.result_pieces, left);
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

// b's columns are pixels, a's rows are filters [groups][rows][depth].
template <class T, class Tile, Role Kind>
CONVX_KERNEL(Tile::kThreads, 1)
multiply_kernel(const T* filters, const T* source, const T* bias, T* result, Shape shape) {
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
  allow_next_kernel();
  wait_for_previous_kernel();
  if constexpr (Kind == kNchw) {
    PlaneLoader<T, Tile::kColumns, Tile::kThreads> b(group_source, shape.b_map, first_column, depth,
                                                     shape.b_channel_stride, shape.b_pieces, thread);
    block.multiply(shared, a, b, 0, chunks);
  } else {
    const auto pixel = [=, &shape](int column) { return shape.b_map.offset(first_column + column); };
    RowLoader<T, Tile::kColumns, Tile::kThreads> b(group_source, pixel, depth, shape.b_pieces, thread);
    block.multiply(shared, a, b, 0, chunks);
  }
  write_results(block, bias, result, shape, group, first_row, first_column, without_source);
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
