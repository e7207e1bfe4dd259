// A warp's part of a block's product: its operands in registers, and its sums.
#pragma once
#include "methods/matrix/channel_order.cuh"
#include "methods/matrix/types.cuh"
#include "methods/pointwise/deep/geometry.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/mma.h"

namespace convx::pointwise::deep {

using matrix::Precision;

struct Shape {
  int filters, channels, step_pairs;
  uint32_t pixels;
  FastDivide plane;  // pixels of an image where images are planes
  FastDivide ranks, pairs;
  int exchange_at;
  int64_t filter_row, filter_depth;  // of the weight as the caller has it

  // Where a pixel's first channel is in a tensor of planes.
  CONVX_DEVICE int64_t in_planes(uint32_t pixel, int channels) const {
    const uint32_t image = plane.quotient(pixel), size = plane.divisor;
    return static_cast<int64_t>(image) * channels * size + (pixel - image * size);
  }
};

// An unsigned number of as many bytes.
template <int Bytes>
struct BitsOf {
  using type = uint32_t;
};
template <>
struct BitsOf<2> {
  using type = uint16_t;
};

template <Precision Kind, int Lanes, int Fragments, bool Planes>
class Warp {
 public:
  using T = typename matrix::Types<Kind>::Element;
  using Cell = Fragment<Lanes>;
  using Own = matrix::NearFilters<Lanes>;
  using Quad = Vector<float, 4>;
  static constexpr int kAtOnce = steps_at_once(Fragments);

  CONVX_DEVICE Warp(const Shape& shape, const uint32_t* packed, const T* source, int pair, uint32_t first,
                    int lane)
      : shape_(shape),
        packed_(packed + static_cast<int64_t>(pair) * 2 * tile_words() + lane * Cell::kWordsA),
        source_(source),
        first_(first),
        lane_(lane) {
    if constexpr (Planes) {
      const uint32_t pixel = min(first + Cell::column_of_b(lane) * Fragments, shape.pixels - Fragments);
      source_ += shape.in_planes(pixel, shape.channels);
    }
    CONVX_UNROLL
    for (int i = 0; i < 2 * Fragments * 4; ++i) sum_[i / (Fragments * 4)][i / 4 % Fragments][i % 4] = 0;
  }

  // Of step pairs at, at + step ..., as long as there are such.
  CONVX_DEVICE void fetch_filters(int at, int step) {
    CONVX_UNROLL
    for (int i = 0; i < kAtOnce; ++i, at += step) {
      if (at >= shape_.step_pairs) return;
      CONVX_UNROLL
      for (int row = 0; row < 2; ++row) {
        CONVX_UNROLL
        for (int half = 0; half < 2; ++half) {
          const auto words =
              load<uint32_t, Cell::kWordsA>(packed_ + row * tile_words() + (2 * at + half) * 128);
          CONVX_UNROLL
          for (int w = 0; w < Cell::kWordsA; ++w) filter_[i][row][half][w] = words.element[w];
        }
      }
    }
  }

  CONVX_DEVICE void fetch_pixels(int at, int step) {
    CONVX_UNROLL
    for (int i = 0; i < kAtOnce; ++i, at += step) {
      if (at >= shape_.step_pairs) return;
      const int channel = (at * Cell::kSlots + Cell::slot(lane_)) * kNear;
      if constexpr (Planes) {
        fetch_planes(channel, pixel_[i]);
      } else {
        fetch_channels(channel, pixel_[i]);
      }
    }
  }

  CONVX_DEVICE void multiply(int at, int step) {
    CONVX_UNROLL
    for (int i = 0; i < kAtOnce; ++i, at += step) {
      if (at >= shape_.step_pairs) return;
      Filters high[2][2], low[2][2];
      CONVX_UNROLL
      for (int row = 0; row < 2; ++row) {
        CONVX_UNROLL
        for (int half = 0; half < 2; ++half) {
          CONVX_UNROLL
          for (int w = 0; w < Cell::kWordsA; ++w) {
            part_of(filter_[i][row][half][w], high[row][half][w], low[row][half][w]);
          }
        }
      }
      CONVX_UNROLL
      for (int f = 0; f < Fragments; ++f) {
        uint32_t b[4], low_b[4];
        CONVX_UNROLL
        for (int w = 0; w < 4; ++w) part_of(pixel_[i][f].element[w], b[w], low_b[w]);
        CONVX_UNROLL
        for (int row = 0; row < 2; ++row) add(sum_[row][f], high[row], low[row], b, low_b);
      }
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
  static constexpr int kNear = 16 / static_cast<int>(sizeof(T));

  static constexpr int kHalves = sizeof(T) == 2 ? 2 : 1;  // values of a word

  CONVX_DEVICE void fetch_channels(int channel, Vector<uint32_t, 4> (&pixels)[Fragments]) const {
    CONVX_UNROLL
    for (int f = 0; f < Fragments; ++f) {
      const uint32_t pixel = min(first_ + f * Cell::kColumns + Cell::column_of_b(lane_), shape_.pixels - 1);
      pixels[f] = {};
      if (channel < shape_.channels) {
        pixels[f] = *reinterpret_cast<const Vector<uint32_t, 4>*>(
            source_ + static_cast<int64_t>(pixel) * shape_.channels + channel);
      }
    }
  }

  // A lane's columns of all fragments are neighbours in a plane: one load for each channel.
  CONVX_DEVICE void fetch_planes(int channel, Vector<uint32_t, 4> (&pixels)[Fragments]) const {
    using Bits = typename BitsOf<sizeof(T)>::type;
    const int64_t plane = shape_.plane.divisor;
    const auto* from = reinterpret_cast<const Bits*>(source_) + channel * plane;
    Vector<Bits, Fragments> row[kNear];
    CONVX_UNROLL
    for (int j = 0; j < kNear; ++j) {
      row[j] = {};
      if (channel + j < shape_.channels) row[j] = load<Bits, Fragments>(from + j * plane);
    }
    CONVX_UNROLL
    for (int f = 0; f < Fragments; ++f) {
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
    constexpr int kOfLane = Own::kPlaces * Fragments, kAtOnceStored = kOfLane < 4 ? kOfLane : 4;
    using Some = Vector<float, kAtOnceStored>;
    float* const first = own + Own::first_filter(lane_) * kPitch + Cell::column(lane_, 0) * Fragments;
    CONVX_UNROLL
    for (int i = 0; i < Own::kNear; ++i) {
      CONVX_UNROLL
      for (int p = 0; p < kOfLane; p += kAtOnceStored) {
        Some some;
        CONVX_UNROLL
        for (int j = 0; j < kAtOnceStored; ++j) {
          some.element[j] = sum_[Own::fragment(i)][(p + j) % Fragments][Own::index(i, (p + j) / Fragments)];
        }
        *reinterpret_cast<Some*>(first + i * kPitch + p) = some;
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

  const Shape& shape_;
  const uint32_t* packed_;
  const T* source_;
  uint32_t first_;
  int lane_;
  float sum_[2][Fragments][4];
  Filters filter_[kAtOnce][2][2];
  Vector<uint32_t, 4> pixel_[kAtOnce][Fragments];
};

}  // namespace convx::pointwise::deep
