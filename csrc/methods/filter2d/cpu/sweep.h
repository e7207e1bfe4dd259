// A tile's way along its rows: the part of the kernels that depends on the filter, and on nothing else, so
// that images of every type share it.
#pragma once
#include "methods/filter2d/cpu/tile.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

template <class A>
struct Sweep {
  const A* const* rows;  // of the source, at the column of result column 0
  const A* weight;
  A bias;
  Activation activation;
  int64_t begin, end;  // columns; the last block is computed and written whole
  int64_t row_count;   // rows that are written
  A* result;
  int64_t pitch;  // of result
};

// The sweep of a kind of tile, and what it reads.
template <class A>
struct Sweeper {
  int64_t rows;         // of a tile
  int64_t source_rows;  // that a tile reads
  int64_t reach;        // columns that it reads beyond its own
  void (*run)(const FilterProblem&, const Sweep<A>&);
};

template <class Tile>
void run_sweep(const FilterProblem& problem, const Sweep<typename Tile::A>& sweep) {
  using A = typename Tile::A;
  constexpr int L = kLanes<A>;
  const Tile tile(problem);
  for (int64_t column = sweep.begin; column < sweep.end; column += kVectors * L) {
    Simd<A, L> sum[Tile::kRows][kVectors] = {};
    tile(sweep.rows, column, sweep.weight, sum);
    CONVX_UNROLLED
    for (int h = 0; h < Tile::kRows; ++h) {
      if (h >= sweep.row_count) break;
      CONVX_UNROLLED
      for (int v = 0; v < kVectors; ++v) {
        store<L>(sweep.result + h * sweep.pitch + column + v * L,
                 activate<A, L>(sum[h][v] + sweep.bias, sweep.activation));
      }
    }
  }
}

template <class Tile>
Sweeper<typename Tile::A> sweeper(const FilterProblem& problem) {
  const Tile tile(problem);
  return {Tile::kRows, tile.source_rows(), tile.source_columns() - kVectors * kLanes<typename Tile::A>,
          run_sweep<Tile>};
}

}  // namespace image_filter
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
