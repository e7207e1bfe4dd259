// The first product: a chunk of the expanded tensor, of all of the window. Pixels outside the image are zero.
#pragma once
#include "methods/inverted_residual/activations.cuh"
#include "methods/inverted_residual/banded/source.cuh"
#include "platform/gpu/fragments.h"
#include "platform/gpu/mma.h"

namespace convx::inverted_residual::banded {

// Of a warp: where its rows go, and which of a lane's pixels are inside the image.
template <class T, class Form>
class Expand {
 public:
  static constexpr int kRows = Form::kRows, kSteps = Form::kShape.depth_steps;
  static constexpr int kTogether = kRows == 2 ? 2 : 1;

  CONVX_DEVICE Expand(const Arguments<T>& a, const Window& w, unsigned char* windows, int warp, int lane) {
    const Bound<T> bound(a.activation);
    const uint32_t width = static_cast<uint32_t>(a.width), height = static_cast<uint32_t>(a.height);
    const int channel = (lane / 8 & 1) * 8 + lane % 8;
    CONVX_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int row = warp + i * Form::kWarps;
      if (i < kPlaces) {
        to_[i] =
            shared_place(windows + channel * Form::kWindowPitch + half_of(window_row<Form>(row), lane / 16));
      }
      const bool is_row = static_cast<uint32_t>(w.top + row) < height;
      inside_ |= (is_row ? 1u : 0u) << i;
      CONVX_UNROLL
      for (int tile = 0; tile < 2 && i < kMasks; ++tile) {
        const uint32_t column = static_cast<uint32_t>(w.left + tile * 8 + lane % 4 * 2);
        const uint32_t mask = (column < width ? 0xffffu : 0u) | (column + 1 < width ? 0xffff0000u : 0u);
        most_[i][tile] = Form::kInside == Inside::relu ? bound.high & mask : mask;
        if (kMasks > 1 && !is_row) most_[i][tile] = 0;
        make_opaque(most_[i][tile]);
      }
    }
    make_opaque(inside_);
    // Four sums begin with a lane's two channels.
    biases_at_ = static_cast<uint32_t>(a.expand_bias_at + lane / 4 * 16 - lane * 16);
    make_opaque(biases_at_);
  }

  // Returns whether any of it is not finite, which is looked for where that can be of finite pixels. stage:
  // of the lane's 16 bytes. window_at: bytes behind the first window.
  CONVX_DEVICE bool operator()(const Source<T, Form>& source, SharedPlace stage, int window_at) const {
    NonFinite<T> non_finite;
    const SharedPlace biases = stage + static_cast<int>(biases_at_);
    CONVX_UNROLL
    for (int pair = 0; pair < Form::kChunkPairs; ++pair) {
      uint32_t filters[kSteps][4], bias[4];
      load_piece(biases + pair * 8 * 16, bias);
      CONVX_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        load_piece(stage + (pair * kSteps + step) * static_cast<int>(kPairBytes), filters[step]);
      }
      const float first[4] = {bits_to_float(bias[0]), bits_to_float(bias[1]), bits_to_float(bias[2]),
                              bits_to_float(bias[3])};
      // Two rows at a time, so that their products do not wait for one another.
      CONVX_UNROLL
      for (int i = 0; i < kRows; i += kTogether) {
        uint32_t words[kTogether][4];
        CONVX_UNROLL
        for (int k = 0; k < kTogether; ++k) make_row(source, i + k, filters, first, words[k]);
        CONVX_UNROLL
        for (int k = 0; k < kTogether; ++k) {
          if constexpr (!Form::kBounded) {
            CONVX_UNROLL
            for (int word = 0; word < 4; ++word) non_finite.look_at(words[k][word]);
          }
          store_rows(to(i + k) + window_at + pair * 16 * Form::kWindowPitch, words[k]);
        }
      }
    }
    return non_finite.any();
  }

 private:
  // 16 channels of a row of pixels. word: channels from 8 * (word % 2) on, pixels from 8 * (word / 2) on.
  CONVX_DEVICE void make_row(const Source<T, Form>& source, int row, const uint32_t (&filters)[kSteps][4],
                             const float (&first)[4], uint32_t (&words)[4]) const {
    CONVX_UNROLL
    for (int tile = 0; tile < 2; ++tile) {
      float sum[4] = {first[0], first[1], first[2], first[3]};
      CONVX_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        const auto& pixels = source.pixels(row, tile, step);
        multiply_fragments<32, T>(sum, filters[step], pixels.element[0], pixels.element[1]);
      }
      const uint32_t most = kMasks > 1                  ? most_[row % kMasks][tile]
                            : (inside_ >> row & 1) != 0 ? most_[0][tile]
                                                        : 0;
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        const uint32_t pair = activated_pair<T, Form::kInside>(sum[2 * half], sum[2 * half + 1], most);
        words[2 * tile + half] = Form::kInside == Inside::relu ? pair : pair & most;
      }
    }
  }

  // Eight warps' next rows are eight further: of stride 2, where every second row is a neighbour, four.
  static constexpr int kPlaces = Form::kWarps != 8 ? kRows : Form::kStride;
  CONVX_DEVICE SharedPlace to(int row) const { return to_[row % kPlaces] + row / kPlaces * 8 * kRowBytes; }

  // Registers for each row's masks there are for two rows.
  static constexpr int kMasks = kRows <= 2 ? kRows : 1;
  SharedPlace to_[kPlaces];
  uint32_t most_[kMasks][2];  // zero outside the image
  uint32_t inside_ = 0;       // a bit for each row
  uint32_t biases_at_;        // of a stage, behind the lane's first filters
};

}  // namespace convx::inverted_residual::banded
