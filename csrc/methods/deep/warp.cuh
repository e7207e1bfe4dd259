// A warp's part of a block's product: its operands in registers, and its sums.
#pragma once
#include "methods/deep/shape.cuh"
#include "methods/matrix/channel_order.cuh"
#include "methods/matrix/types.cuh"
#include "platform/gpu/early_load.h"
#include "platform/gpu/mma.h"

namespace convx::deep {

using matrix::Precision;

// An unsigned number of as many bytes.
template <int Bytes>
struct BitsOf {
  using type = uint32_t;
};
template <>
struct BitsOf<2> {
  using type = uint16_t;
};

template <Precision Kind, int Lanes, int Fragments, bool Planes, bool Taps>
class Warp {
 public:
  using T = typename matrix::Types<Kind>::Element;
  using Cell = Fragment<Lanes>;
  using Own = matrix::NearFilters<Lanes>;
  using Quad = Vector<float, 4>;
  static constexpr int kAtOnce = steps_at_once(Fragments);
  // Whether a lane's columns of all fragments are neighbours in a plane.
  static constexpr bool kNeighbours = Planes && !Taps;

  // Of step pairs from `first` to before `end`.
  CONVX_DEVICE Warp(const Shape& shape, const uint32_t* packed, const T* source, int pair, int lane,
                    int first, int end)
      : shape_(shape),
        packed_(packed + static_cast<int64_t>(pair) * 2 * tile_words() + first * 256 + lane * Cell::kWordsA),
        source_(source),
        lane_(lane),
        left_(end - first),
        piece_(first * Cell::kSlots + Cell::slot(lane)) {
    CONVX_UNROLL
    for (int i = 0; i < 2 * Fragments * 4; ++i) sum_[i / (Fragments * 4)][i / 4 % Fragments][i % 4] = 0;
  }

  // The next step pair's operands, where there is one, in one of kAtOnce slots.
  CONVX_DEVICE void fetch_filters(int slot) {
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i / 2, half = i % 2;
      load_if(left_ > 0, packed_ + row * tile_words() + half * 128, filter_[slot][row][half]);
    }
    packed_ += 256;
  }

  // Those that come later, a cache line a lane: they may be in memory still.
  CONVX_DEVICE void prefetch_filters() const {
    constexpr int kLineWords = 32, kHalfLines = 256 / kLineWords, kLines = 2 * kHalfLines;  // of a step pair
    const uint32_t* const from = packed_ - lane_ * Cell::kWordsA + lane_ / kHalfLines % 2 * tile_words() +
                                 lane_ % kHalfLines * kLineWords;
    for (int i = lane_ / kLines; i < left_ - kAtOnce; i += Lanes / kLines) prefetch_to_l2(from + i * 256);
  }

  // Where the lane's pixels are, and the first piece of their depth.
  CONVX_DEVICE void aim(uint32_t first_pixel) {
    const int column = Cell::column_of_b(lane_);
    CONVX_UNROLL
    for (int f = 0; f < kPlaces; ++f) {
      if constexpr (kNeighbours) {
        const uint32_t pixel = min(first_pixel + column * Fragments, shape_.pixels - Fragments);
        place_[f] = static_cast<int>(shape_.in_planes(pixel, shape_.channels));
      } else {
        const uint32_t pixel = min(first_pixel + f * Cell::kColumns + column, shape_.pixels - 1);
        if constexpr (Taps) {
          field_[f] = Field(shape_, pixel, Planes);
          place_[f] = field_[f].place;
        } else {
          place_[f] = static_cast<int>(pixel) * shape_.channels;
        }
      }
    }
    if constexpr (Taps) {
      const Window& window = shape_.window;
      index_ = static_cast<int>(window.pieces.quotient(static_cast<uint32_t>(piece_)));
      piece_ -= index_ * static_cast<int>(window.pieces.divisor);
      tap_ = Tap(window, static_cast<uint32_t>(index_));
      aim_at_tap();
    } else {
      shift_ = piece_ * kNear * channel_step();
      exists_[0] = piece_ * kNear < shape_.channels;
      CONVX_UNROLL
      for (int f = 1; f < kPlaces; ++f) exists_[f] = exists_[0];
    }
  }

  CONVX_DEVICE void fetch_pixels(int slot) {
    const bool is_one = left_ > 0;
    const int channel = piece_ * kNear;
    CONVX_UNROLL
    for (int f = 0; f < kPlaces; ++f) {
      const T* const from = source_ + (place_[f] + shift_);
      const bool exists = is_one && exists_[f];
      if constexpr (Planes) {
        const int count = exists ? shape_.channels - channel : 0;
        fetch_planes(reinterpret_cast<const Bits*>(from), count, pixel_[slot] + f);
      } else {
        pixel_[slot][f] = {};
        load_if(exists, from, pixel_[slot][f].element);
      }
    }
    --left_;
    advance();
  }

  // What a slot has.
  CONVX_DEVICE void multiply(int slot) {
    Filters high[2][2], low[2][2];
    CONVX_UNROLL
    for (int i = 0; i < 4 * Cell::kWordsA; ++i) {
      const int row = i / 2 % 2, half = i % 2, w = i / 4;
      part_of(filter_[slot][row][half][w], high[row][half][w], low[row][half][w]);
    }
    CONVX_UNROLL
    for (int f = 0; f < Fragments; ++f) {
      uint32_t b[4], low_b[4];
      CONVX_UNROLL
      for (int w = 0; w < 4; ++w) part_of(pixel_[slot][f].element[w], b[w], low_b[w]);
      CONVX_UNROLL
      for (int row = 0; row < 2; ++row) add(sum_[row][f], high[row], low[row], b, low_b);
    }
  }

  // Of this warp: rows of pixels, or of planes' filters, each followed by a gap.
  static constexpr int kPixels = Fragments * Cell::kColumns;
  static constexpr int kRows = Planes ? kPairFilters : kPixels;
  static constexpr int kPitch = (Planes ? kPixels : kPairFilters) + kRowGap;
  CONVX_DEVICE void store_sums(float* own) const {
    if constexpr (Planes) {
      store_planes(own);
    } else {
      store_channels(own);
    }
  }

 private:
  using Filters = uint32_t[Cell::kWordsA];
  using Four = Vector<uint32_t, 4>;
  using Bits = typename BitsOf<sizeof(T)>::type;
  static constexpr int kNear = kPieceBytes / static_cast<int>(sizeof(T));

  static constexpr int kHalves = sizeof(T) == 2 ? 2 : 1;  // values of a word

  CONVX_DEVICE void aim_at_tap() {
    const Window& window = shape_.window;
    shift_ = tap_.shift(window, Planes ? 1 : shape_.channels) + piece_ * kNear * channel_step();
    CONVX_UNROLL
    for (int f = 0; f < kPlaces; ++f) exists_[f] = index_ < window.taps && tap_.is_inside(window, field_[f]);
  }

  CONVX_DEVICE void advance() {
    piece_ += Cell::kSlots;
    shift_ += Cell::kSlots * kNear * channel_step();
    if constexpr (Taps) {
      const int pieces = static_cast<int>(shape_.window.pieces.divisor);
      if (piece_ < pieces) return;
      for (; piece_ >= pieces; piece_ -= pieces, ++index_) tap_.advance(shape_.window);
      aim_at_tap();
    } else {
      CONVX_UNROLL
      for (int f = 0; f < kPlaces; ++f) exists_[f] = piece_ * kNear < shape_.channels;
    }
  }

  // Elements from a channel to the next.
  CONVX_DEVICE int channel_step() const {
    if constexpr (!Planes) return 1;
    return Taps ? shape_.window.height * shape_.window.width : static_cast<int>(shape_.plane.divisor);
  }

  // Channels of a piece, as many as there are: of a pixel or, by one load each, of neighbouring ones.
  CONVX_DEVICE void fetch_planes(const Bits* from, int count, Four* pixels) const {
    constexpr int kTogether = Fragments / kPlaces;
    const int64_t step = channel_step();
    Vector<Bits, kTogether> row[kNear];
    CONVX_UNROLL
    for (int j = 0; j < kNear; ++j) {
      row[j] = {};
      if (j < count) row[j] = load<Bits, kTogether>(from + j * step);
    }
    CONVX_UNROLL
    for (int f = 0; f < kTogether; ++f) {
      CONVX_UNROLL
      for (int w = 0; w < 4; ++w) {
        uint32_t word = row[kHalves * w].element[f];
        if constexpr (kHalves == 2) word |= static_cast<uint32_t>(row[2 * w + 1].element[f]) << 16;
        pixels[f].element[w] = word;
      }
    }
  }

  CONVX_DEVICE void store_channels(float* own) const {
    CONVX_UNROLL
    for (int f = 0; f < Fragments; ++f) {
      CONVX_UNROLL
      for (int place = 0; place < Own::kPlaces; ++place) {
        float* const to =
            own + (f * Cell::kColumns + Cell::column(lane_, place)) * kPitch + Own::first_filter(lane_);
        CONVX_UNROLL
        for (int i = 0; i < Own::kNear; i += 4) {
          Quad four;
          CONVX_UNROLL
          for (int j = 0; j < 4; ++j) {
            four.element[j] = sum_[Own::fragment(i + j)][f][Own::index(i + j, place)];
          }
          *reinterpret_cast<Quad*>(to + i) = four;
        }
      }
    }
  }

  CONVX_DEVICE void store_planes(float* own) const {
    constexpr int kOfLane = Own::kPlaces * Fragments;
    constexpr int kTogether = !kNeighbours ? Own::kPlaces : kOfLane < 4 ? kOfLane : 4;
    using Some = Vector<float, kTogether>;
    float* const first =
        own + Own::first_filter(lane_) * kPitch + Cell::column(lane_, 0) * (kNeighbours ? Fragments : 1);
    CONVX_UNROLL
    for (int i = 0; i < Own::kNear; ++i) {
      CONVX_UNROLL
      for (int p = 0; p < kOfLane; p += kTogether) {
        Some some;
        CONVX_UNROLL
        for (int j = 0; j < kTogether; ++j) {
          const int fragment = kNeighbours ? (p + j) % Fragments : p / kTogether;
          some.element[j] =
              sum_[Own::fragment(i)][fragment][Own::index(i, kNeighbours ? (p + j) / Fragments : j)];
        }
        *reinterpret_cast<Some*>(first + i * kPitch + (kNeighbours ? p : p / kTogether * Cell::kColumns)) =
            some;
      }
    }
  }

  CONVX_DEVICE int64_t tile_words() const { return static_cast<int64_t>(shape_.step_pairs) * 256; }

  // Operands of the matrix units, of a word as it is in memory.
  CONVX_DEVICE static void part_of(uint32_t word, uint32_t& high, [[maybe_unused]] uint32_t& low) {
    if constexpr (Kind == matrix::kSplit) {
      part_tf32(word, high, low);
    } else {
      high = matrix::element_bytes(Kind) == 2 ? word : round_to_tf32(bits_to_float(word));
    }
  }

  // A pair of steps.
  CONVX_DEVICE static void add(float (&sum)[4], const Filters (&a)[2],
                               [[maybe_unused]] const Filters (&low_a)[2], const uint32_t (&b)[4],
                               [[maybe_unused]] const uint32_t (&low_b)[4]) {
    using Product = typename matrix::Types<Kind>::Product;
    if constexpr (Kind == matrix::kSplit) {
      // Matrix units drop digits of long sums: each pair is summed by itself, and added in float32.
      float part[4] = {0, 0, 0, 0};
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        multiply_fragments<Lanes, Product>(part, a[half], low_b[2 * half], low_b[2 * half + 1]);
        multiply_fragments<Lanes, Product>(part, low_a[half], b[2 * half], b[2 * half + 1]);
      }
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        multiply_fragments<Lanes, Product>(part, a[half], b[2 * half], b[2 * half + 1]);
      }
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] += part[i];
    } else {
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        multiply_fragments<Lanes, Product>(sum, a[half], b[2 * half], b[2 * half + 1]);
      }
    }
  }

  static constexpr int kPlaces = kNeighbours ? 1 : Fragments;  // of a lane's pixels, neighbours together
  const Shape& shape_;
  const uint32_t* packed_;
  const T* source_;
  int lane_, left_;  // step pairs whose pixels are not fetched
  // Of the next pixels: the piece, of their tap where there are taps, and where it is from each place.
  int piece_, shift_ = 0, place_[kPlaces];
  bool exists_[kPlaces];
  int index_ = 0;  // of the tap
  Tap tap_;
  Field field_[Taps ? Fragments : 1];
  float sum_[2][Fragments][4];
  Filters filter_[kAtOnce][2][2];
  Four pixel_[kAtOnce][Fragments];
};

}  // namespace convx::deep
