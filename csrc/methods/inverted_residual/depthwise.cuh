// The depthwise stage: from a chunk of the expanded tensor in shared memory to what is projected.
#pragma once
#include "methods/inverted_residual/activations.cuh"
#include "methods/inverted_residual/arguments.cuh"

namespace convx::inverted_residual {

struct alignas(8) Two {
  float x, y;
};

template <class T>
CONVX_DEVICE Two load_pair(const unsigned char* from) {
  if constexpr (sizeof(T) == 4) {
    return *reinterpret_cast<const Two*>(from);
  } else {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(from);
    if constexpr (std::is_same<T, bfloat16>::value) {
      return {bits_to_float(word << 16), bits_to_float(word & 0xffff0000u)};
    } else {
      return {widen(T{static_cast<uint16_t>(word)}), widen(T{static_cast<uint16_t>(word >> 16)})};
    }
  }
}

CONVX_DEVICE void add_products(Two& sum, const Two& a, const Two& b) {
  sum.x = multiply_add(a.x, b.x, sum.x);
  sum.y = multiply_add(a.y, b.y, sum.y);
}

// A strip of Rows x Columns results of two channels. Each row of the window is read once and serves all the
// rows of results that have it: row and column reuse (Lu, Zhang, Wang) in registers.
template <class T, int Filter, int Stride, int Rows, int Columns>
CONVX_DEVICE void filter_strip(const unsigned char* window, int row_pitch, int pixel_pitch, const Two* taps,
                               int taps_pitch, Two (&sums)[Rows][Columns]) {
  constexpr int kHeight = (Rows - 1) * Stride + Filter, kWidth = (Columns - 1) * Stride + Filter;
  Two filter[Filter * Filter];
  CONVX_UNROLL
  for (int tap = 0; tap < Filter * Filter; ++tap) filter[tap] = taps[tap * taps_pitch];
  CONVX_UNROLL
  for (int y = 0; y < kHeight; ++y) {
    Two pixels[kWidth];
    CONVX_UNROLL
    for (int x = 0; x < kWidth; ++x) {
      pixels[x] = load_pair<T>(window + y * row_pitch + x * pixel_pitch);
    }
    CONVX_UNROLL
    for (int row = 0; row < Rows; ++row) {
      const int tap_row = y - row * Stride;
      if (tap_row < 0 || tap_row >= Filter) continue;
      CONVX_UNROLL
      for (int column = 0; column < Columns; ++column) {
        CONVX_UNROLL
        for (int tap = 0; tap < Filter; ++tap) {
          add_products(sums[row][column], pixels[column * Stride + tap], filter[tap_row * Filter + tap]);
        }
      }
    }
  }
}

// Whether the thread's results are such that products have to be as they stand: of float32, and not finite.
template <class T, class Form>
CONVX_DEVICE bool depthwise(const Arguments<T>& a, const unsigned char* stage, const unsigned char* window,
                            unsigned char* to, int chunk) {
  constexpr int kRows = Form::kStripRows, kColumns = Form::kShape.strip_columns;
  constexpr int kTaps = Form::kFilter * Form::kFilter, kBytesOfPair = 2 * sizeof(T);
  using Words = Vector<uint32_t, kBytesOfPair / 4>;
  const int pairs = a.chunk / 2;  // of channels
  const Two* const taps = reinterpret_cast<const Two*>(stage + a.depthwise_at);
  const int row_pitch = a.window_width * a.window_pitch;
  const Bound<T> bound(a.activation);
  float sizes = 0;  // infinite or no number, where one of the results is or rounds to it
  // A thread's channels stay the same; those that are left over have none.
  const int first_strip = static_cast<int>(a.by_channel_pairs.quotient(threadIdx.x));
  const int pair = threadIdx.x - first_strip * pairs;
  // Behind the last channel there is no zero to be filtered where pixels are not finite.
  const bool is_there = chunk * a.chunk + pair * 2 < a.expanded_channels;
  const Two bias = taps[kTaps * pairs + pair];
  CONVX_NO_UNROLL
  for (int strip = first_strip < a.strip_step ? first_strip : a.strips; strip < a.strips;
       strip += a.strip_step) {
    const int down = static_cast<int>(a.by_strips_across.quotient(strip)) * kRows;
    const int across = static_cast<int>(a.by_strips_across.remainder(strip)) * kColumns;
    Two sums[kRows][kColumns];
    CONVX_UNROLL
    for (int i = 0; i < kRows * kColumns; ++i) sums[i / kColumns][i % kColumns] = bias;
    if (is_there) {
      filter_strip<T, Form::kFilter, Form::kStride, kRows, kColumns>(
          window + (down * row_pitch + across * a.window_pitch) * Form::kStride + pair * kBytesOfPair,
          row_pitch, a.window_pitch, taps + pair, pairs, sums);
    }
    CONVX_UNROLL
    for (int row = 0; row < kRows; ++row) {
      CONVX_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        const int pixel = (down + row) * a.tile_width + across + column;
        const float values[2] = {sums[row][column].x, sums[row][column].y};
        const auto words = activated_words<T, Form::kInside>(values, bound);
        *reinterpret_cast<Words*>(to + pixel * a.filtered_pitch + pair * kBytesOfPair) = words;
        if constexpr (sizeof(T) == 4) {
          sizes = multiply_add(fabsf(bits_to_float(words.element[0])), 2.0f, sizes);
          sizes = multiply_add(fabsf(bits_to_float(words.element[1])), 2.0f, sizes);
        }
      }
    }
  }
  return !(sizes < INFINITY);
}

}  // namespace convx::inverted_residual
