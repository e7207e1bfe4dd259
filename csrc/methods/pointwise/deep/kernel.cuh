// Products of few pixels with deep filters, in channels_last: the last layers of networks. A block makes a
// pair of fragments of filters and some fragments of pixels, a warp of it the part of some channels: operands
// come straight from memory to registers, all that a warp needs at once, filters before the kernel's turn.
// Then warps add up what they have in shared memory, and the blocks of a cluster, which have other channels.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/matrix/channel_order.cuh"
#include "methods/matrix/types.cuh"
#include "methods/pointwise/deep/geometry.h"
#include "platform/gpu/cluster.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/mma.h"
#include "platform/gpu/overlap.h"

namespace convx::pointwise::deep {

using matrix::Precision;

struct Shape {
  int filters, channels, step_pairs;
  uint32_t pixels;
  FastDivide ranks, pairs;
  int exchange_at;
  int64_t filter_row, filter_depth;  // of the weight as the caller has it
};

template <Precision Kind, int Lanes, int Fragments>
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
      CONVX_UNROLL
      for (int f = 0; f < Fragments; ++f) {
        const uint32_t pixel = min(first_ + f * Cell::kColumns + Cell::column_of_b(lane_), shape_.pixels - 1);
        pixel_[i][f] = {};
        if (channel < shape_.channels) {
          pixel_[i][f] = *reinterpret_cast<const Vector<uint32_t, 4>*>(
              source_ + static_cast<int64_t>(pixel) * shape_.channels + channel);
        }
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

  // own: of this warp, [pixel][kPitch].
  CONVX_DEVICE void store_sums(float* own) const {
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

 private:
  using Filters = uint32_t[Cell::kWordsA];
  static constexpr int kNear = 16 / static_cast<int>(sizeof(T));

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

// What a block's sums become. Units are four neighbouring filters of a pixel.
template <Precision Kind, class T>
struct Ending {
  using Quad = Vector<float, 4>;
  const Shape& shape;
  const T *weight, *source, *bias;
  T* result;
  const Finishing<T>& finishing;
  int first_filter;
  uint32_t first_pixel;

  // The two parts of an infinity, or of a number that rounds to one, are not numbers: such sums are made
  // again from the operands as they stand.
  CONVX_DEVICE float exact_sum(int filter, uint32_t pixel) const {
    const T* const own = weight + filter * shape.filter_row;
    const T* const from = source + static_cast<int64_t>(pixel) * shape.channels;
    float sum = 0;
    CONVX_NO_UNROLL
    for (int channel = 0; channel < shape.channels; ++channel) {
      sum = multiply_add(widen(own[channel * shape.filter_depth]), widen(from[channel]), sum);
    }
    return sum;
  }

  // By turns: one copy of the code.
  CONVX_DEVICE void make_exact(float (&row)[4], int filter, uint32_t pixel) const {
    const float all = (row[0] + row[1]) + (row[2] + row[3]);
    if (fabsf(all) < INFINITY) return;
    CONVX_NO_UNROLL
    for (int turn = 0; turn < 4; ++turn) {
      float first = row[0];
      if (!(fabsf(first) < INFINITY)) first = exact_sum(filter + turn, pixel);
      row[0] = row[1], row[1] = row[2], row[2] = row[3], row[3] = first;
    }
  }

  CONVX_DEVICE void store_unit(int unit, Quad sums) const {
    constexpr int kQuads = kPairFilters / 4;
    const int filter = first_filter + unit % kQuads * 4;
    const uint32_t pixel = first_pixel + unit / kQuads;
    if (filter >= shape.filters || pixel >= shape.pixels) return;
    float (&row)[4] = sums.element;
    if constexpr (Kind == matrix::kSplit) make_exact(row, filter, pixel);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) row[i] += bias_of(bias, filter + i);
    T* const place = result + static_cast<int64_t>(pixel) * shape.filters + filter;
    finish<T>(
        row, finishing, [&](int i) { return filter + i; },
        [&](T(&residuals)[4]) { read_residuals(finishing, place, residuals); });
    Vector<T, 4> values;
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) values.element[i] = narrow<T>(row[i]);
    store<T, 4>(place, values);
  }
};

template <Precision Kind, int Lanes, int Fragments, class T>
CONVX_KERNEL(kWarps* Lanes, 1)
deep_kernel(const uint32_t* packed, const T* weight, const T* source, const T* bias, T* result, Shape shape,
            Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  CONVX_DYNAMIC_SHARED(shared);
  using OfWarp = Warp<Kind, Lanes, Fragments>;
  using Quad = Vector<float, 4>;
  constexpr int kPixels = Fragments * Fragment<Lanes>::kColumns, kUnits = kPixels * kPairFilters / 4;
  const int ranks = static_cast<int>(shape.ranks.divisor);
  const bool is_shared = kHasClusters && ranks > 1;
  if (is_shared) cluster_arrive();
  const uint32_t tile = shape.ranks.quotient(blockIdx.x);
  const int rank = static_cast<int>(shape.ranks.remainder(blockIdx.x));
  const int pair = static_cast<int>(shape.pairs.remainder(tile));
  const uint32_t first_pixel = shape.pairs.quotient(tile) * kPixels;
  const int warp = static_cast<int>(threadIdx.x) / Lanes, step = kWarps * ranks;

  OfWarp own(shape, packed, source, pair, first_pixel, static_cast<int>(threadIdx.x) % Lanes);
  int at = rank * kWarps + warp;
  own.fetch_filters(at, step);
  take_turn();
  CONVX_NO_UNROLL
  for (;;) {
    own.fetch_pixels(at, step);
    own.multiply(at, step);
    at += OfWarp::kAtOnce * step;
    if (at >= shape.step_pairs) break;
    own.fetch_filters(at, step);
  }

  float* const sums = reinterpret_cast<float*>(shared);
  Quad* const exchange = reinterpret_cast<Quad*>(shared + shape.exchange_at);  // [giver][unit]
  own.store_sums(sums + warp * kPixels * kPitch);
  block_barrier();
  const Ending<Kind, T> ending{shape,      weight, source, bias, result, finishing, pair * kPairFilters,
                               first_pixel};
  // The sum of `count` quads that lie `step` floats apart, in their order.
  const auto sum_of = [](const float* place, int count, int step) {
    Quad all = *reinterpret_cast<const Quad*>(place);
    for (int other = 1; other < count; ++other) {
      const Quad more = *reinterpret_cast<const Quad*>(place += step);
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) all.element[i] += more.element[i];
    }
    return all;
  };
  const auto sum_of_warps = [&](int unit) {
    constexpr int kQuads = kPairFilters / 4;
    return sum_of(sums + unit / kQuads * kPitch + unit % kQuads * 4, kWarps, kPixels * kPitch);
  };
  const int of_rank = kUnits / ranks;
  if (is_shared) {
    cluster_wait();  // the others have begun: their shared memory is theirs
    CONVX_NO_UNROLL
    for (int unit = static_cast<int>(threadIdx.x); unit < kUnits; unit += kWarps * Lanes) {
      *in_block(exchange + rank * of_rank + unit % of_rank, unit / of_rank) = sum_of_warps(unit);
    }
    cluster_arrive();
    cluster_wait();
  }
  CONVX_NO_UNROLL
  for (int unit = static_cast<int>(threadIdx.x); unit < of_rank; unit += kWarps * Lanes) {
    const Quad all = is_shared ? sum_of(reinterpret_cast<const float*>(exchange + unit), ranks, of_rank * 4)
                               : sum_of_warps(unit);
    ending.store_unit(rank * of_rank + unit, all);
  }
}

}  // namespace convx::pointwise::deep
