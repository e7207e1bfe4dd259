// Products of few channels in channels_last: all of a pixel's are in registers, straight from memory, while a
// warp goes through the filters, which stay in shared memory. Its blocks go from pixels to pixels without a
// barrier, so that some warps read while others multiply and write.
#pragma once
#include <type_traits>

#include "methods/activate.cuh"
#include "methods/epilogue.cuh"
#include "methods/matrix/channel_order.cuh"
#include "methods/shallow/geometry.h"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/mma.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/pair.h"

namespace convx::shallow {

struct Shape {
  int filters, channels, pairs, block_pairs;  // pairs of fragments: of all filters, of a block's
  uint32_t pixels, groups, pixel_blocks;
  FastDivide splits;
  Activation activation;
};

// What inverted residual blocks with squeeze-and-excitation have beside: channels of a pixel are multiplied
// with the gates of its image, (images, channels), and a residual is added, null without. Without: Plain.
template <class T>
struct Excited {
  const T *gates, *residual;
  FastDivide plane;  // pixels of an image
};
struct Plain {};

template <class T, float (*Activate)(float)>
struct Each {
  CONVX_DEVICE void operator()(float (&row)[4]) const {
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) row[i] = Activate(row[i]);
  }
};

// What a lane has of a pixel.
template <int StepPairs>
struct Pixel {
  Vector<uint32_t, 4> piece[StepPairs];
};

template <int Lanes, int StepPairs, class T, class Extra>
class Warp {
 public:
  static constexpr bool kIsExcited = std::is_same<Extra, Excited<T> >::value;
  static constexpr int kFragments = fragments_of(Lanes, StepPairs), kSteps = 2 * StepPairs;
  using Cell = Fragment<Lanes>;
  using Own = matrix::NearFilters<Lanes>;

  CONVX_DEVICE Warp(const Shape& shape, const T* source, T* result, const Extra& extra, int lane)
      : shape_(shape), source_(source), result_(result), extra_(extra), lane_(lane) {}

  // Of pixels behind the last one there is something to be read, and of channels zeros.
  CONVX_DEVICE void read(uint32_t first) {
    CONVX_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      const uint32_t pixel = pixel_of(first, f);
      const T* const from = source_ + static_cast<int64_t>(pixel) * shape_.channels;
      CONVX_UNROLL
      for (int p = 0; p < StepPairs; ++p) {
        const int channel = p * 32 + Cell::slot(lane_) * 8;
        pixel_[f].piece[p] = {};
        if (channel < shape_.channels) {
          pixel_[f].piece[p] = *reinterpret_cast<const Vector<uint32_t, 4>*>(from + channel);
        }
      }
    }
    if constexpr (kIsExcited) excite(first);
  }

  // A pair of fragments of filters.
  template <class Activate>
  CONVX_DEVICE void make(const uint32_t* filters, const float* bias, uint32_t first, int first_filter,
                         const Activate& activate) {
    const int filter = first_filter + Own::first_filter(lane_);
    Vector<T, Own::kNear> residual[kFragments][Own::kPlaces];
    if constexpr (kIsExcited) read_residual(residual, first, filter);
    float shift[Own::kNear];
    CONVX_UNROLL
    for (int i = 0; i < Own::kNear; i += 4) {
      const auto four = *reinterpret_cast<const Vector<float, 4>*>(bias + Own::first_filter(lane_) + i);
      CONVX_UNROLL
      for (int j = 0; j < 4; ++j) shift[i + j] = four.element[j];
    }
    float sum[2][kFragments][4];
    CONVX_UNROLL
    for (int i = 0; i < Own::kNear; ++i) {
      CONVX_UNROLL
      for (int place = 0; place < Own::kPlaces; ++place) {
        CONVX_UNROLL
        for (int f = 0; f < kFragments; ++f) sum[Own::fragment(i)][f][Own::index(i, place)] = shift[i];
      }
    }
    CONVX_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      uint32_t of_filters[2][Cell::kWordsA];
      CONVX_UNROLL
      for (int row = 0; row < 2; ++row) {
        const auto words = *reinterpret_cast<const Vector<uint32_t, Cell::kWordsA>*>(
            filters + (row * kSteps + step) * 128 + lane_ * Cell::kWordsA);
        CONVX_UNROLL
        for (int word = 0; word < Cell::kWordsA; ++word) of_filters[row][word] = words.element[word];
      }
      CONVX_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        const auto& piece = pixel_[f].piece[step / 2];
        const int half = step % 2 * 2;
        CONVX_UNROLL
        for (int row = 0; row < 2; ++row) {
          multiply_fragments<Lanes, T>(sum[row][f], of_filters[row], piece.element[half],
                                       piece.element[half + 1]);
        }
      }
    }
    CONVX_UNROLL
    for (int row = 0; row < 2; ++row) {
      CONVX_UNROLL
      for (int f = 0; f < kFragments; ++f) activate(sum[row][f]);
    }
    if (filter >= shape_.filters) return;
    CONVX_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      CONVX_UNROLL
      for (int place = 0; place < Own::kPlaces; ++place) {
        const uint32_t pixel = first + f * Cell::kColumns + Cell::column(lane_, place);
        if (pixel >= shape_.pixels) continue;
        Vector<T, Own::kNear> near;
        CONVX_UNROLL
        for (int i = 0; i < Own::kNear; ++i) {
          float value = sum[Own::fragment(i)][f][Own::index(i, place)];
          if constexpr (kIsExcited) {
            if (extra_.residual != nullptr) value += widen(residual[f][place].element[i]);
          }
          near.element[i] = narrow<T>(value);
        }
        store<T, Own::kNear>(result_ + static_cast<int64_t>(pixel) * shape_.filters + filter, near);
      }
    }
  }

 private:
  CONVX_DEVICE uint32_t pixel_of(uint32_t first, int f) const {
    return min(first + f * Cell::kColumns + Cell::column_of_b(lane_), shape_.pixels - 1);
  }

  // Rounded once more, as where the product with the gates is an operator of its own. Neighbouring pixels
  // have the same gates, but for those of two images.
  CONVX_DEVICE void excite(uint32_t first) {
    uint32_t image[kFragments];
    CONVX_UNROLL
    for (int f = 0; f < kFragments; ++f) image[f] = extra_.plane.quotient(pixel_of(first, f));
    CONVX_UNROLL
    for (int p = 0; p < StepPairs; ++p) {
      const int channel = p * 32 + Cell::slot(lane_) * 8;
      if (channel >= shape_.channels) continue;
      Vector<uint32_t, 4> gates;
      CONVX_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        if (f == 0 || image[f] != image[f - 1]) {
          gates = *reinterpret_cast<const Vector<uint32_t, 4>*>(
              extra_.gates + static_cast<int64_t>(image[f]) * shape_.channels + channel);
        }
        auto& piece = pixel_[f].piece[p];
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) piece.element[i] = multiply_pairs<T>(piece.element[i], gates.element[i]);
      }
    }
  }

  // Before the products, which hide how long it takes.
  CONVX_DEVICE void read_residual(Vector<T, Own::kNear> (&residual)[kFragments][Own::kPlaces], uint32_t first,
                                  int filter) const {
    if (extra_.residual == nullptr || filter >= shape_.filters) return;
    CONVX_UNROLL
    for (int f = 0; f < kFragments; ++f) {
      CONVX_UNROLL
      for (int place = 0; place < Own::kPlaces; ++place) {
        const uint32_t pixel =
            min(first + f * Cell::kColumns + Cell::column(lane_, place), shape_.pixels - 1);
        residual[f][place] =
            load<T, Own::kNear>(extra_.residual + static_cast<int64_t>(pixel) * shape_.filters + filter);
      }
    }
  }

  const Shape& shape_;
  const T* source_;
  T* result_;
  const Extra& extra_;
  int lane_;
  Pixel<StepPairs> pixel_[kFragments];
};

template <int Lanes, int StepPairs, class T, class Extra>
CONVX_KERNEL((kWarps * Lanes), kMostBlocks)
shallow_kernel(const uint32_t* packed, const T* source, const T* bias, T* result, Shape shape, Extra extra) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  constexpr int kPairWords = 2 * 2 * StepPairs * 128, kFilters = static_cast<int>(kPairFilters);
  CONVX_DYNAMIC_SHARED(shared);
  auto* const filters = reinterpret_cast<uint32_t*>(shared);
  auto* const biases = reinterpret_cast<float*>(filters + shape.block_pairs * kPairWords);
  const uint32_t block = shape.splits.quotient(blockIdx.x);
  const int first_pair = static_cast<int>(shape.splits.remainder(blockIdx.x)) * shape.block_pairs;
  const int pairs = min(shape.block_pairs, shape.pairs - first_pair), first_filter = first_pair * kFilters;
  // Packed: complete before the kernel before this one begins.
  const uint32_t* const own = packed + static_cast<int64_t>(first_pair) * kPairWords;
  CONVX_NO_UNROLL
  for (int i = threadIdx.x * 4; i < pairs * kPairWords; i += static_cast<int>(kWarps) * Lanes * 4) {
    copy_async<16>(filters + i, own + i, 16);
  }
  commit_copies();
  take_turn();
  CONVX_NO_UNROLL
  for (int i = threadIdx.x; i < pairs * kFilters; i += static_cast<int>(kWarps) * Lanes) {
    const int filter = first_filter + i;
    biases[i] = filter < shape.filters ? bias_of(bias, filter) : 0.0f;
  }
  wait_copies<0>();
  block_barrier();
  Warp<Lanes, StepPairs, T, Extra> warp(shape, source, result, extra, static_cast<int>(threadIdx.x) % Lanes);
  constexpr int kPixels = fragments_of(Lanes, StepPairs) * Fragment<Lanes>::kColumns;
  const auto run = [&](const auto& activate) {
    CONVX_NO_UNROLL
    for (uint32_t group = block * static_cast<uint32_t>(kWarps) + threadIdx.x / Lanes; group < shape.groups;
         group += shape.pixel_blocks * static_cast<uint32_t>(kWarps)) {
      warp.read(group * kPixels);
      CONVX_NO_UNROLL
      for (int pair = 0; pair < pairs; ++pair) {
        warp.make(filters + pair * kPairWords, biases + pair * kFilters, group * kPixels,
                  first_filter + pair * kFilters, activate);
      }
    }
  };
  // Each of its own: what is not asked for would lie between what is.
  constexpr bool kClamps = Warp<Lanes, StepPairs, T, Extra>::kIsExcited;
  if (kClamps || shape.activation <= Activation::relu6) {
    run(ClampRow(shape.activation));
  } else if constexpr (!kClamps) {
    if (shape.activation == Activation::silu) {
      run(Each<T, silu<T> >());
    } else if (shape.activation == Activation::hardswish) {
      run(Each<T, hardswish<T> >());
    } else {
      run(Each<T, gelu<T> >());
    }
  }
}

}  // namespace convx::shallow
