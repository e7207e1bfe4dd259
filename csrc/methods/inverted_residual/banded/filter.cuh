// The depthwise stage as products: a row of the window, 16 columns, times a band of taps makes the part of a
// row of results that one row of taps has in it. Each of a filter's rows is a product of its own, of rows of
// the window further down.
//
//     result[y][x] = sum over j, k of window[y * stride + j][k] * band_j[k][x]
//     band_j[k][x] = taps[j][k - x * stride]
//
// A lane's words of a band are two neighbouring taps, or one and zero, or zeros: pieces of them are packed
// (pack.cuh), and which piece a lane has is the same for all channels.
#pragma once
#include "methods/inverted_residual/activations.cuh"
#include "methods/inverted_residual/banded/plane_sums.cuh"
#include "platform/gpu/fragments.h"
#include "platform/gpu/mma.h"

namespace convx::inverted_residual::banded {

template <class T, class Form>
class Filter {
 public:
  static constexpr int kFilter = Form::kFilter, kStride = Form::kStride;
  static constexpr int kPieceBytes = taps_piece(kFilter), kTapsBytes = taps_bytes(kFilter);
  static constexpr int kPairs = Form::kChunk / 2;  // of channels, two at a time
  static constexpr int kTurns = (kPairs + Form::kWarps - 1) / Form::kWarps;

  CONVX_DEVICE Filter(const Arguments<T>& a, const Window& w, unsigned char* windows, unsigned char* filtered,
                      int warp, int lane)
      : bound_(a.activation), first_(warp * kTurns * 2), plane_sums_(a, w, lane) {
    // Of the lane's two words of the depth no more than one meets taps.
    const int tap = 2 * (lane % 4) - kStride * (lane / 4);
    const bool is_first = tap >= -1 && tap < kFilter, is_second = tap + 8 >= -1 && tap + 8 < kFilter;
    mask_[0] = is_first ? 0xffffffffu : 0u, mask_[1] = is_second ? 0xffffffffu : 0u;
    make_opaque(mask_[0]), make_opaque(mask_[1]);
    const int piece_at = is_first || is_second ? (tap + (is_first ? 0 : 8) + 1) * kPieceBytes : 0;
    taps_at_ = static_cast<uint32_t>(a.depthwise_at + first_ * kTapsBytes + piece_at);
    make_opaque(taps_at_);
    // Of the four matrices that lanes have rows of: which half of the columns, and which eight of 16 rows or,
    // of flat tiles, which of two channels.
    const int one = lane / 8 & 1, two = lane / 16, row = lane % 8;
    const int half = Form::kIsFlat ? one : two, eight = Form::kIsFlat ? 0 : one;
    CONVX_UNROLL
    for (int j = 0; j < kFilter; ++j) {
      // Rows behind the last result's are made into what nobody stores.
      const int from = min((row + eight * 8) * kStride + j, Form::kWindowRows - 1);
      from_[j] = shared_place(windows + (first_ + (Form::kIsFlat ? two : 0)) * Form::kWindowPitch +
                              half_of(window_row<Form>(from), half));
    }
    const int line = one * 8 + row;  // of results: a row, or of flat tiles a column
    const int place =
        !Form::kIsFlat && kStride == 1 ? half_of(line, two) : line * 16 + two * Form::kFilteredPitch;
    to_ = shared_place(filtered + first_ * Form::kFilteredPitch + place);
  }

  // Of a chunk. window_at, filtered_at: bytes behind the first ones.
  CONVX_DEVICE void operator()(const Arguments<T>& a, const Window& w, SharedPlace stage, int window_at,
                               int filtered_at, int first_channel) const {
    typename Sums::OfWarp sums;
    SharedPlace taps = stage + taps_at_, biases = stage + a.depthwise_bias_at + first_ * 16;
    CONVX_UNROLL
    for (int turn = 0; turn < kTurns; ++turn) {
      if (kTurns * Form::kWarps != kPairs && first_ + turn * 2 >= Form::kChunk) break;
      Taps of[2];
      CONVX_UNROLL
      for (int c = 0; c < 2; ++c)
        of[c].load(taps + (2 * turn + c) * kTapsBytes, biases + (2 * turn + c) * 16);
      const int from = window_at + 2 * turn * Form::kWindowPitch;
      const int to = filtered_at + 2 * turn * Form::kFilteredPitch;
      uint32_t words[2][4];
      Form::kIsFlat ? make_flat(of, from, to, words) : make_tall(of, from, to, words);
      CONVX_UNROLL
      for (int c = 0; c < 2; ++c) plane_sums_.add(sums, words[c], 2 * turn + c);
    }
    plane_sums_.store(a, w, sums, first_channel, first_);
  }

  // The same where there are infinities or NaN, whose products with the zeros of a band would be NaN: value
  // by value, of what is inside the image alone. stage, window, filtered: the first bytes.
  CONVX_DEVICE void exactly(const Arguments<T>& a, const Window& w, const unsigned char* stage,
                            const unsigned char* window, unsigned char* filtered, int first_channel) const {
    constexpr int kWidth = Form::kTileWidth;
    const int results = a.tile_height * kWidth;
    CONVX_NO_UNROLL
    for (int at = threadIdx.x; at < Form::kChunk * results; at += blockDim.x) {
      const int channel = at / results, row = at % results / kWidth, column = at % results % kWidth;
      const unsigned char* const taps = stage + a.depthwise_at + channel * kTapsBytes;
      float sum = *reinterpret_cast<const float*>(stage + a.depthwise_bias_at + channel * 16);
      CONVX_NO_UNROLL
      for (int tap = 0; tap < kFilter * kFilter; ++tap) {
        const int y = row * kStride + tap / kFilter, x = column * kStride + tap % kFilter;
        if (static_cast<uint32_t>(w.top + y) >= static_cast<uint32_t>(a.height)) continue;
        if (static_cast<uint32_t>(w.left + x) >= static_cast<uint32_t>(a.width)) continue;
        const T pixel = reinterpret_cast<const T*>(window + channel * Form::kWindowPitch +
                                                   half_of(window_row<Form>(y), x / 8))[x % 8];
        // A piece's taps: tap - 1 and tap.
        const T weight =
            reinterpret_cast<const T*>(taps + tap % kFilter * kPieceBytes)[tap / kFilter * 2 + 1];
        sum = multiply_add(widen(pixel), widen(weight), sum);
      }
      // Behind the last channel filters are zeros, and their products need not be.
      const bool is_there = first_channel + channel_of_plane(Form::kEnd, channel) < a.expanded_channels;
      const uint32_t word = activated_pair<T, Form::kInside>(is_there ? sum : 0.0f, 0.0f, bound_.high);
      const int place = Form::kIsFlat  ? column * 16 + row * 2
                        : kStride == 1 ? half_of(row, column / 8) + column % 8 * 2
                                       : row * 16 + column * 2;
      reinterpret_cast<T*>(filtered + channel * Form::kFilteredPitch + place)->bits =
          static_cast<uint16_t>(word);
    }
  }

 private:
  // The lane's piece of a channel, a word for every row of taps, and with what four sums begin.
  struct Taps {
    uint32_t word[kPieceBytes / 16][4];
    float bias[4];

    CONVX_DEVICE void load(SharedPlace piece, SharedPlace biases) {
      CONVX_UNROLL
      for (int i = 0; i < kPieceBytes / 16; ++i) load_piece(piece + i * 16, word[i]);
      uint32_t bits[4];
      load_piece(biases, bits);
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) bias[i] = bits_to_float(bits[i]);
    }
    CONVX_DEVICE uint32_t of_row(int j) const { return word[j / 4][j % 4]; }
  };

  // Rows of results from rows of the window. Of stride 1 columns from the ninth on meet the second half of
  // the window's columns as the others do the first.
  CONVX_DEVICE void make_tall(const Taps (&of)[2], int from, int to, uint32_t (&words)[2][4]) const {
    constexpr int kParts = kStride == 1 ? 2 : 1;
    CONVX_UNROLL
    for (int c = 0; c < 2; ++c) {
      uint32_t rows[kFilter][4];
      CONVX_UNROLL
      for (int j = 0; j < kFilter; ++j) load_rows(from_[j] + from + c * Form::kWindowPitch, rows[j]);
      float sum[kParts][4];
      CONVX_UNROLL
      for (int i = 0; i < 4 * kParts; ++i) sum[i / 4][i % 4] = of[c].bias[i % 4];
      CONVX_UNROLL
      for (int j = 0; j < kFilter; ++j) {
        const uint32_t first = of[c].of_row(j) & mask_[0], second = of[c].of_row(j) & mask_[1];
        multiply_fragments<32, T>(sum[0], rows[j], first, second);
        if constexpr (kParts == 2) multiply_half_fragments<32, T>(sum[1], rows[j][2], rows[j][3], first);
      }
      CONVX_UNROLL
      for (int i = 0; i < 2 * kParts; ++i) {
        words[c][i] =
            activated_pair<T, Form::kInside>(sum[i / 2][i % 2 * 2], sum[i / 2][i % 2 * 2 + 1], bound_.high);
      }
    }
    if constexpr (kStride == 1) {
      store_rows(to_ + to, words[0]);
      store_rows(to_ + to + Form::kFilteredPitch, words[1]);
    } else {
      const uint32_t both[4] = {words[0][0], words[0][1], words[1][0], words[1][1]};
      store_rows(to_ + to, both);
    }
  }

  // Columns of results of two channels, eight rows each: the band has the place of filters.
  CONVX_DEVICE void make_flat(const Taps (&of)[2], int from, int to, uint32_t (&words)[2][4]) const {
    uint32_t rows[kFilter][4];
    CONVX_UNROLL
    for (int j = 0; j < kFilter; ++j) load_rows(from_[j] + from, rows[j]);
    CONVX_UNROLL
    for (int c = 0; c < 2; ++c) {
      float sum[4] = {of[c].bias[0], of[c].bias[1], of[c].bias[2], of[c].bias[3]};
      CONVX_UNROLL
      for (int j = 0; j < kFilter; ++j) {
        const uint32_t near = of[c].of_row(j) & mask_[0];
        const uint32_t band[4] = {near, 0, of[c].of_row(j) & mask_[1], near};
        multiply_fragments<32, T>(sum, band, rows[j][2 * c], rows[j][2 * c + 1]);
      }
      CONVX_UNROLL
      for (int i = 0; i < 2; ++i) {
        words[c][i] = activated_pair<T, Form::kInside>(sum[2 * i], sum[2 * i + 1], bound_.high);
      }
    }
    const uint32_t both[4] = {words[0][0], words[0][1], words[1][0], words[1][1]};
    store_rows(to_ + to, both);
  }

  using Sums = PlaneSums<T, Form>;

  Bound<T> bound_;
  uint32_t mask_[2];
  int first_;         // channel of the warp's
  uint32_t taps_at_;  // of a stage: the lane's
  SharedPlace from_[kFilter], to_;
  Sums plane_sums_;
};

}  // namespace convx::inverted_residual::banded
