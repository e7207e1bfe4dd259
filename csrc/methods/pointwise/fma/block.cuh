// A product of matrices on the arithmetic units: both operands pass through a ring of stages in shared
// memory, a thread sums a tile of results in registers. Exact in the accumulator's type.
#pragma once
#include "methods/pointwise/fma/loaders.cuh"

namespace convx::pointwise::fma {

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

}  // namespace convx::pointwise::fma
