// channels_last weight gradient: lanes along channels, the sums of a few filter rows in registers over all
// pixels of a piece of the image; an input pixel is loaded once per filter row and meets every tap that it
// touches.
#pragma once
#include "methods/depthwise/cpu/channels_rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// Rows [row_begin, row_end) of one image's output gradient, one block of channels.
template <class T>
struct ChannelWeightPiece {
  const T* input;  // first channel of the block, image's first pixel
  const T* grad;
  int64_t row_begin, row_end;
  // Distances of the next piece, to prefetch; 0 where the tensors stay in a second-level cache anyway.
  int64_t input_ahead = 0, grad_ahead = 0;
};

template <class T, int Filter, int Stride>
struct ChannelWeightRows {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  static constexpr bool kWide = kRegisters == 32;
  static constexpr int kRows = Filter == 3 ? 3 : kWide ? (Filter == 5 ? 3 : 2) : (Filter == 5 ? 2 : 1);
  static constexpr int kStrip = kWide ? 7 : (Filter == 7 ? 7 : 4);

  const Job& job;
  // Joining the total costs some percent: 3x3, which memory bounds, can hide little of it.
  int64_t rows_per_sum = rows_summed_apart(job.target_width, Filter == 3 ? 112 : 32);

  // To the next pixel. A compiler that sees through this computes the distances of all pixels of a strip
  // beforehand, and runs out of registers for them.
  CONVX_INLINE void step(const T*& pixel) const {
    pixel += job.channels;
    asm("" : "+r"(pixel));
  }

  // Where it can spill to vector registers, the compiler's distances are better here: pixels that come from
  // memory arrive up to a tenth sooner.
  template <int Count>
  CONVX_INLINE void prefetch_pixels(const T* pixel) const {
    CONVX_UNROLLED
    for (int i = 0; i < Count; ++i) {
      __builtin_prefetch(kWide ? pixel + i * job.channels : pixel, 0, 2);
      if (!kWide) step(pixel);
    }
  }

  // What the strip adds to the pixels read before it, a piece ahead.
  template <int Width>
  CONVX_INLINE void prefetch(const ChannelWeightPiece<T>& piece, const T* grad, int64_t row,
                             int64_t first) const {
    const int64_t last_rows = row * Stride - job.pad_top + Filter - Stride;
    const T* source = piece.input + piece.input_ahead + (last_rows * job.source_width + first) * job.channels;
    prefetch_pixels<Width>(grad + piece.grad_ahead);
    CONVX_UNROLLED
    for (int i = 0; i < Stride; ++i) {
      prefetch_pixels<Width * Stride>(source + i * job.source_width * job.channels);
    }
  }

  // Strip of Width output pixels from (row, column): sums of Rows filter rows from first_row on. The first
  // Before and the last After of its input columns may lie outside.
  template <int Rows, int Width, int Before, int After>
  CONVX_INLINE void strip(const ChannelWeightPiece<T>& piece, int first_row, int64_t row, int64_t column,
                          V (&sum)[Rows][Filter]) const {
    constexpr int kSources = (Width - 1) * Stride + Filter;
    const T* grad = piece.grad + (row * job.target_width + column) * job.channels;
    const int64_t first = column * Stride - job.pad_left;
    if (piece.grad_ahead != 0 && first_row == 0) prefetch<Width>(piece, grad, row, first);
    V dy[Width];
    CONVX_UNROLLED
    for (int w = 0; w < Width; ++w, step(grad)) dy[w] = load<L>(grad);
    CONVX_UNROLLED
    for (int f = 0; f < Rows; ++f) {
      const int64_t source_row = row * Stride - job.pad_top + first_row + f;
      if (source_row < 0 || source_row >= job.source_height) continue;
      const T* source = piece.input + (source_row * job.source_width + first) * job.channels;
      CONVX_UNROLLED
      for (int j = 0; j < kSources; ++j, step(source)) {
        if (j < Before && first + j < 0) continue;
        if (j >= kSources - After && first + j >= job.source_width) continue;
        V x = load<L>(source);
        keep(x);
        CONVX_UNROLLED
        for (int w = 0; w < Width; ++w) {
          const int g = j - w * Stride;
          if (g < 0 || g >= Filter) continue;
          sum[f][g] += x * dy[w];
        }
      }
    }
  }

  // As many strips as fit into the row, from a column on; the column after them. Those at the image's sides
  // compare only the columns that may lie outside: in narrow images they are half of all.
  template <int Rows, int Width>
  CONVX_INLINE int64_t strips(const ChannelWeightPiece<T>& piece, int first_row, int64_t row, int64_t column,
                              V (&sum)[Rows][Filter]) const {
    constexpr int kSources = (Width - 1) * Stride + Filter, kSide = Filter - 1;
    for (; column + Width <= job.target_width; column += Width) {
      const int64_t first = column * Stride - job.pad_left;
      const int64_t after = job.source_width - (first + kSources);  // columns beyond the strip's own
      if (first >= 0 && after >= 0) {
        strip<Rows, Width, 0, 0>(piece, first_row, row, column, sum);
      } else if (Width > 1 && first >= -kSide && after >= 0) {
        strip<Rows, Width, kSide, 0>(piece, first_row, row, column, sum);
      } else if (Width > 1 && first >= 0 && after >= -kSide) {
        strip<Rows, Width, 0, kSide>(piece, first_row, row, column, sum);
      } else {
        strip<Rows, Width, kSources, kSources>(piece, first_row, row, column, sum);
      }
    }
    return column;
  }

  template <int Rows>
  __attribute__((noinline)) void filter_rows(const ChannelWeightPiece<T>& piece, int first_row,
                                             A* partial) const {
    for (int64_t begin = piece.row_begin; begin < piece.row_end; begin += rows_per_sum) {
      const int64_t end = minimum(begin + rows_per_sum, piece.row_end);
      V sum[Rows][Filter] = {};
      for (int64_t row = begin; row < end; ++row) {
        const int64_t column = strips<Rows, kStrip>(piece, first_row, row, 0, sum);
        strips<Rows, 1>(piece, first_row, row, column, sum);
      }
      CONVX_UNROLLED
      for (int f = 0; f < Rows; ++f) {
        CONVX_UNROLLED
        for (int g = 0; g < Filter; ++g) add_to<L>(partial + ((first_row + f) * Filter + g) * L, sum[f][g]);
      }
    }
  }

  void add(const ChannelWeightPiece<T>& piece, A* partial) const {
    int first_row = 0;
    for (; first_row + kRows <= Filter; first_row += kRows) filter_rows<kRows>(piece, first_row, partial);
    if constexpr (Filter % kRows != 0) filter_rows<Filter % kRows>(piece, first_row, partial);
  }
};

// Any filter: one filter row at a time, four taps in registers.
template <class T>
struct ChannelWeightGeneral {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  static constexpr int kTaps = 4;

  const Job& job;
  int64_t rows_per_sum = rows_summed_apart(job.target_width);

  template <int Taps>
  CONVX_INLINE void taps(const ChannelWeightPiece<T>& piece, int64_t f, int64_t g, A* partial) const {
    A* target = partial + (f * job.filter_width + g) * L;
    for (int64_t begin = piece.row_begin; begin < piece.row_end; begin += rows_per_sum) {
      const int64_t end = minimum(begin + rows_per_sum, piece.row_end);
      V sum[Taps] = {};
      for (int64_t row = begin; row < end; ++row) {
        const int64_t source_row = row * job.stride_h - job.pad_top + f * job.dilation_h;
        if (source_row < 0 || source_row >= job.source_height) continue;
        for (int64_t column = 0; column < job.target_width; ++column) {
          const V dy = load<L>(piece.grad + (row * job.target_width + column) * job.channels);
          const int64_t first = column * job.stride_w - job.pad_left + g * job.dilation_w;
          CONVX_UNROLLED
          for (int t = 0; t < Taps; ++t) {
            const int64_t source = first + t * job.dilation_w;
            if (source < 0 || source >= job.source_width) continue;
            sum[t] += dy * load<L>(piece.input + (source_row * job.source_width + source) * job.channels);
          }
        }
      }
      CONVX_UNROLLED
      for (int t = 0; t < Taps; ++t) add_to<L>(target + t * L, sum[t]);
    }
  }

  void add(const ChannelWeightPiece<T>& piece, A* partial) const {
    for (int64_t f = 0; f < job.filter_height; ++f) {
      int64_t g = 0;
      for (; g + kTaps <= job.filter_width; g += kTaps) taps<kTaps>(piece, f, g, partial);
      for (; g < job.filter_width; ++g) taps<1>(piece, f, g, partial);
    }
  }
};

// Tasks are (slice, chunk of channels); a slice is a part of the rows of the whole batch.
template <class T, class Kernel>
struct ChannelWeight {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;

  const Job& job;
  int64_t taps = job.filter_height * job.filter_width;
  int64_t blocks = ceil_divide(job.channels, L);
  // One task a thread, of those that the slices leave; a chunk's sums stay in a second-level cache.
  int64_t chunks =
      minimum(blocks, maximum(job.threads / job.slices,
                              ceil_divide(blocks * taps * L * static_cast<int64_t>(sizeof(A)), 131072)));
  // Some hundred pixels keep their sums in registers; pieces alike, since each prefetches the next one.
  int64_t pieces = ceil_divide(job.target_height, rows_summed_apart(job.target_width, 112));
  int64_t rows_per_piece = ceil_divide(job.target_height, pieces);

  int64_t tasks() const { return job.slices * chunks; }

  void run(int64_t begin, int64_t end) const {
    const Kernel kernel{job};
    const int64_t all_rows = job.batch * job.target_height;
    const bool large =
        job.batch * job.source_height * job.source_width * job.channels * static_cast<int64_t>(sizeof(T)) >
        kPrefetchBytes;
    const int64_t max_blocks = ceil_divide(blocks, chunks);
    Scratch scratch(max_blocks * taps * L * static_cast<int64_t>(sizeof(A)));
    A* partial = scratch.as<A>();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t slice = task / chunks, chunk = task % chunks;
      const int64_t block_begin = blocks * chunk / chunks, block_end = blocks * (chunk + 1) / chunks;
      zero_over(partial, (block_end - block_begin) * taps * L);
      const int64_t slice_end = all_rows * (slice + 1) / job.slices;
      for (int64_t row = all_rows * slice / job.slices; row < slice_end;) {
        const int64_t image = row / job.target_height;
        ChannelWeightPiece<T> piece;
        piece.row_begin = row % job.target_height;
        piece.row_end = minimum(minimum(piece.row_begin + rows_per_piece, job.target_height),
                                piece.row_begin + slice_end - row);
        if (large) {
          const int64_t rows = piece.row_end - piece.row_begin;
          const bool whole = rows == job.target_height;
          piece.grad_ahead = rows * job.target_width * job.channels;
          piece.input_ahead = (whole ? job.source_height : minimum(rows * job.stride_h, job.source_height)) *
                              job.source_width * job.channels;
        }
        for (int64_t block = block_begin; block < block_end; ++block) {
          const int64_t channel = minimum(block * L, job.channels - L);
          piece.input = static_cast<const T*>(job.source) +
                        image * job.source_height * job.source_width * job.channels + channel;
          piece.grad = static_cast<const T*>(job.target_grad) +
                       image * job.target_height * job.target_width * job.channels + channel;
          kernel.add(piece, partial + (block - block_begin) * taps * L);
        }
        row += piece.row_end - piece.row_begin;
      }
      finish(partial, slice, block_begin, block_end);
    }
  }

  // [block][tap][lane] to [channel][tap], in the result or in the slice's part of the workspace.
  void finish(const A* partial, int64_t slice, int64_t block_begin, int64_t block_end) const {
    for (int64_t block = block_begin; block < block_end; ++block, partial += taps * L) {
      const int64_t first = minimum(block * L, job.channels - L) * taps;
      for (int lane = 0; lane < L; ++lane) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const A value = partial[tap * L + lane];
          const int64_t index = first + lane * taps + tap;
          if (job.slices == 1) {
            store_one(static_cast<T*>(job.result) + index, value);
          } else {
            static_cast<A*>(job.workspace)[slice * job.channels * taps + index] = value;
          }
        }
      }
    }
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
