// One image's rows, band by band.
//
// A task is a band of rows of one image. The band goes strip by strip of columns, narrow enough that the rows
// a tile reads stay in the first-level cache, and down each strip tile by tile of rows, all filters of a bank
// at each. Where images hold accumulators already, tiles read them in place; at the left and right edge, and
// for the other types, they read copies with the border's columns in place, each made once, in a ring of
// rows. Rows outside of the image are rows of it by the border's mapping, or zeros.
#pragma once
#include "methods/filter2d/cpu/rows.h"
#include "methods/filter2d/cpu/sweep.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

constexpr int64_t kStripBytes =
    131072;  // of source rows: a part of a second-level cache, and long runs of each row

// Memory of one thread.
template <class A>
struct Buffers {
  const A** rows;  // the source rows of a tile
  A *ring, *zeros, *results, *weights, *biases;
};

struct Strip {
  int64_t begin, end;  // columns of the result
  bool in_place;
};

template <class T>
class Kernel {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int64_t kBlock = kVectors * L;  // columns of a tile
  static constexpr bool kInPlace = sizeof(T) == sizeof(A);

 public:
  Kernel(const filter2d::Job& job, const Sweeper<A>& sweeper)
      : job_(job), problem_(job.problem), sweeper_(sweeper) {
    const int64_t fitting =
        kStripBytes / (sweeper_.source_rows * static_cast<int64_t>(sizeof(A))) - sweeper_.reach;
    const int64_t widest = round_up(problem_.out_width, kBlock);
    strip_columns_ = minimum(maximum(fitting / kBlock, 4) * kBlock, widest);
    pitch_ = round_up(strip_columns_ + sweeper_.reach + L, L);
    const int64_t bands = problem_.images % maximum(job.threads, 1) == 0 ? 1 : job.threads;
    band_rows_ = round_up(ceil_divide(problem_.out_height, bands), sweeper_.rows);
    bands_ = ceil_divide(problem_.out_height, band_rows_);
  }

  int64_t tasks() const { return problem_.images * bands_; }

  void run(int64_t begin, int64_t end) const {
    const int64_t taps = problem_.filter_height * problem_.filter_width;
    const int64_t row_bytes = round_up(sweeper_.source_rows * static_cast<int64_t>(sizeof(A*)), 64);
    const int64_t elements =
        (sweeper_.source_rows + 1 + sweeper_.rows) * pitch_ + round_up(problem_.filters * (taps + 1), L);
    Scratch memory(row_bytes + elements * static_cast<int64_t>(sizeof(A)));
    Buffers<A> buffers;
    buffers.rows = memory.template as<const A*>();
    buffers.ring = reinterpret_cast<A*>(memory.template as<unsigned char>() + row_bytes);
    buffers.zeros = buffers.ring + sweeper_.source_rows * pitch_;
    buffers.results = buffers.zeros + pitch_;
    buffers.weights = buffers.results + sweeper_.rows * pitch_;
    buffers.biases = buffers.weights + problem_.filters * taps;
    zero_over(buffers.zeros, pitch_);
    for (int64_t i = 0; i < problem_.filters * taps; ++i) buffers.weights[i] = parameter(job_.filters, i);
    for (int64_t f = 0; f < problem_.filters; ++f) {
      buffers.biases[f] = job_.epilogue.bias == nullptr ? A(0) : parameter(job_.epilogue.bias, f);
    }
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % bands_ * band_rows_;
      run_band(task / bands_, first, minimum(first + band_rows_, problem_.out_height), buffers);
    }
  }

 private:
  // Filters and biases of uint8 images are float.
  static A parameter(const void* values, int64_t index) {
    if constexpr (sizeof(T) == 1) {
      return static_cast<const float*>(values)[index];
    } else {
      return widen(static_cast<const T*>(values)[index]);
    }
  }

  void run_band(int64_t index, int64_t first, int64_t end, const Buffers<A>& buffers) const {
    const T* image = static_cast<const T*>(job_.images) + index * problem_.height * problem_.width;
    T* result =
        static_cast<T*>(job_.result) + index * problem_.filters * problem_.out_height * problem_.out_width;
    for (int64_t column = 0; column < problem_.out_width;) {
      const Strip strip = strip_from(column);
      run_strip(image, result, first, end, strip, buffers);
      column = strip.end;
    }
  }

  // In place where every element that a tile reads is in its row.
  Strip strip_from(int64_t begin) const {
    const int64_t widest = minimum(begin + strip_columns_, problem_.out_width);
    if (!kInPlace) return {begin, widest, false};
    const int64_t left = round_up(problem_.padding_left, L);
    if (begin < left) return {begin, minimum(widest, left), false};
    const int64_t inside = minimum(problem_.width + problem_.padding_left - sweeper_.reach, widest);
    const int64_t blocks = (inside - begin) / kBlock;
    if (blocks <= 0) return {begin, widest, false};
    return {begin, begin + blocks * kBlock, true};
  }

  void run_strip(const T* image, T* result, int64_t first, int64_t end, const Strip& strip,
                 const Buffers<A>& buffers) const {
    const int64_t source_rows = sweeper_.source_rows;
    const int64_t source_column = strip.begin - problem_.padding_left;
    const int64_t count = strip.end - strip.begin;
    const int64_t read = round_up(round_up(count, kBlock) + sweeper_.reach, L);  // of a copied row
    int64_t copied = 0;  // rows of the band that have been in the ring
    for (int64_t row = first; row < end; row += sweeper_.rows) {
      for (int64_t i = 0; i < source_rows; ++i) {
        const int64_t y = border_index(row - problem_.padding_top + i, problem_.height, problem_.border);
        const T* source = y < 0 ? nullptr : image + y * problem_.width;
        if constexpr (kInPlace) {
          if (strip.in_place) {
            buffers.rows[i] = source == nullptr ? buffers.zeros : source + source_column;
            continue;
          }
        }
        const int64_t position = row - first + i;
        A* copy = buffers.ring + position % source_rows * pitch_;
        if (position == copied) {
          copy_row(source, problem_, source_column, count + sweeper_.reach, copy, read);
          ++copied;
        }
        buffers.rows[i] = copy;
      }
      for (int64_t filter = 0; filter < problem_.filters; ++filter) {
        T* target = result + (filter * problem_.out_height + row) * problem_.out_width + strip.begin;
        run_tiles(filter, target, minimum(end - row, sweeper_.rows), count, buffers);
      }
    }
  }

  // One filter's results of the tile's rows. Whole blocks of accumulators go straight to memory, what is left
  // or of another type through a buffer, and what has more than bias and activation through a buffer of sums.
  void run_tiles(int64_t filter, T* target, int64_t row_count, int64_t count,
                 const Buffers<A>& buffers) const {
    Sweep<A> sweep;
    sweep.rows = buffers.rows;
    sweep.weight = buffers.weights + filter * problem_.filter_height * problem_.filter_width;
    const bool plain = job_.epilogue.more == 0;
    sweep.bias = buffers.biases[filter];
    sweep.activation = plain ? job_.epilogue.activation : Activation::none;
    sweep.row_count = row_count;
    int64_t finished = 0;
    if (kInPlace && plain) {
      finished = count / kBlock * kBlock;
      sweep.begin = 0, sweep.end = finished;
      sweep.result = reinterpret_cast<A*>(target), sweep.pitch = problem_.out_width;
      sweeper_.run(problem_, sweep);
    }
    if (finished == count) return;
    sweep.begin = finished, sweep.end = count;
    sweep.result = buffers.results, sweep.pitch = pitch_;
    sweeper_.run(problem_, sweep);
    if constexpr (sizeof(T) > 1) {
      if (!plain) {
        const ChannelEpilogue<T> epilogue(job_.epilogue, filter, true);
        for (int64_t h = 0; h < row_count; ++h) {
          CONVX_SIMD_NAMESPACE::store_row<T>(buffers.results + h * pitch_, target + h * problem_.out_width,
                                             count, 1, epilogue);
        }
        return;
      }
    }
    for (int64_t h = 0; h < row_count; ++h) {
      store_row(buffers.results + h * pitch_ + finished, target + h * problem_.out_width + finished,
                count - finished);
    }
  }

  const filter2d::Job& job_;
  const FilterProblem& problem_;
  const Sweeper<A>& sweeper_;
  int64_t strip_columns_;  // of the widest strip
  int64_t pitch_;          // of copied rows
  int64_t band_rows_, bands_;
};

}  // namespace image_filter
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
