// From the sums of a block to the results of a channels_last tensor: a lane holds neighbouring filters of a
// pixel.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/matrix/channel_order.cuh"
#include "methods/pointwise/tensor/exact.cuh"
#include "methods/pointwise/tensor/kernel.cuh"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, class Tile>
class FinishChannels {
 public:
  using Sums = Block<Kind, Lanes, kChannels, Tile>;
  using T = typename Sums::T;
  using Size = typename Sums::Size;
  using Cell = Fragment<Lanes>;

  CONVX_DEVICE FinishChannels(Sums& sums, const T* filters, const T* source, const T* bias, T* result,
                              const Shape& shape, Activation activation, unsigned char* shared)
      : sums_(sums),
        shape_(shape),
        filters_(filters),
        source_(source),
        activation_(activation),
        shared_(shared) {
    static_assert(Tile::kRowsEach % 2 == 0, "pairs of fragments hold neighbouring filters");
    const int tile = sums.row_tile * Tile::kRowTiles + sums.warp_row * Tile::kRowsEach;
    first_filter_ = filter_of_row<Lanes>(kChannels, tile, Cell::row(sums.lane, 0));
    group_filter_ = static_cast<int64_t>(sums.group) * shape.rows;
    result_ = result + group_filter_ + first_filter_;
    CONVX_UNROLL
    for (int i = 0; i < kFilters; ++i) {
      const int filter = first_filter_ + filter_step(i);
      shift_[i] = bias != nullptr && filter < shape.rows ? widen(bias[group_filter_ + filter]) : 0;
    }
  }

  CONVX_DEVICE void write() {
    if constexpr (Tile::kWarpDepths > 1) {
      write_exchanged();
    } else if (can_write_pieces()) {
      // Each of its own: what is not asked for would lie between what is.
      if (activation_ <= Activation::relu6) return write_pieces(ClampRow(activation_));
      write_pieces([&](float (&row)[Size::kFragments]) { activate_shortly<T>(row, activation_); });
    } else {
      write_own();
    }
  }

 private:
  // Sums of one pixel: kNear neighbours of each pair of fragments, which lie 32 apart.
  using Own = matrix::NearFilters<Lanes>;
  static constexpr int kPlaces = Own::kPlaces, kNear = Own::kNear;
  static constexpr int kFilters = Tile::kRowsEach * 4 / kPlaces;
  CONVX_DEVICE static constexpr int filter_step(int i) { return i / kNear * 32 + i % kNear; }

  CONVX_DEVICE void write_exchanged() {
    constexpr int kTileWarps = Tile::kWarpRows * Tile::kWarpColumns;
    const int warp = threadIdx.x / Lanes;
    float* const all = reinterpret_cast<float*>(shared_);
    block_barrier();  // the stages' memory is used anew
    CONVX_UNROLL
    for (int t = 0; t < Size::kFragments; ++t) {
      CONVX_UNROLL
      for (int place = 0; place < kPlaces; ++place) {
        CONVX_UNROLL
        for (int i = 0; i < kFilters; ++i) {
          all[(warp * Size::kSums + (t * kPlaces + place) * kFilters + i) * Lanes + sums_.lane] =
              sums_.sum[Own::fragment(i)][Own::index(i, place)][t];
        }
      }
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int u = sums_.warp_depth; u < Size::kFragments * kPlaces; u += Tile::kWarpDepths) {
      float values[kFilters];
      CONVX_UNROLL
      for (int i = 0; i < kFilters; ++i) {
        values[i] = 0;
        CONVX_UNROLL
        for (int depth = 0; depth < Tile::kWarpDepths; ++depth) {
          const int from = warp % kTileWarps + depth * kTileWarps;
          values[i] += all[(from * Size::kSums + u * kFilters + i) * Lanes + sums_.lane];
        }
      }
      finish_pixel(u / kPlaces, u % kPlaces, values);
    }
  }

  // Nearly always: filters in whole pieces, and nothing by turns.
  CONVX_DEVICE bool can_write_pieces() const {
    const bool is_whole = shape_.result_pieces && shape_.rows % kNear == 0;
    if (!is_whole || activation_ == Activation::gelu || shape_.source.kind == OtherPixels::spread)
      return false;
    if constexpr (Kind != kSplit) return true;
    return !sums_.has_non_finite([](int, int) { return true; });
  }

  template <class Activate>
  CONVX_DEVICE void write_pieces(const Activate& activate) {
    CONVX_UNROLL
    for (int place = 0; place < kPlaces; ++place) {
      CONVX_UNROLL
      for (int i = 0; i < kFilters; ++i) {
        float (&row)[Size::kFragments] = sums_.sum[Own::fragment(i)][Own::index(i, place)];
        CONVX_UNROLL
        for (int t = 0; t < Size::kFragments; ++t) row[t] += shift_[i];
        activate(row);
      }
    }
    CONVX_UNROLL
    for (int place = 0; place < kPlaces; ++place) {
      const uint32_t first = sums_.first_pixel(place);
      T* to = result_ + first * shape_.result.pixel_stride;
      CONVX_UNROLL
      for (int t = 0; t < Size::kFragments; ++t) {
        if (first + t * Size::kFragmentColumns >= shape_.result.pixels) break;
        CONVX_UNROLL
        for (int i = 0; i < kFilters; i += kNear) {
          if (first_filter_ + filter_step(i) >= shape_.rows) continue;
          Vector<T, kNear> piece;
          CONVX_UNROLL
          for (int j = 0; j < kNear; ++j) {
            piece.element[j] = narrow<T>(sums_.sum[Own::fragment(i + j)][Own::index(i + j, place)][t]);
          }
          store_whole<T, kNear>(to + filter_step(i), piece);
        }
        to += Size::kFragmentColumns * shape_.result.pixel_stride;
      }
    }
  }

  // Through one copy of the code: fragments move up after each.
  CONVX_DEVICE void write_own() {
    CONVX_NO_UNROLL
    for (int turn = 0; turn < Size::kFragments; ++turn) {
      CONVX_UNROLL
      for (int place = 0; place < kPlaces; ++place) {
        float values[kFilters];
        CONVX_UNROLL
        for (int i = 0; i < kFilters; ++i) values[i] = sums_.sum[Own::fragment(i)][Own::index(i, place)][0];
        finish_pixel(turn, place, values);
      }
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) {
          CONVX_UNROLL
          for (int t = 0; t + 1 < Size::kFragments; ++t) sums_.sum[m][i][t] = sums_.sum[m][i][t + 1];
        }
      }
    }
  }

  CONVX_DEVICE void finish_pixel(int t, int place, float (&values)[kFilters]) {
    const uint32_t pixel = sums_.first_pixel(place) + t * Size::kFragmentColumns;
    if (pixel >= shape_.result.pixels) return;
    // No output was made from this pixel: zero even where a filter is infinite.
    const bool empty = shape_.source.kind == OtherPixels::spread && shape_.source.offset(pixel) == kNoPixel;
    if constexpr (Kind == kSplit) make_finite(values, pixel);
    CONVX_UNROLL
    for (int i = 0; i < kFilters; ++i) values[i] = (empty ? 0 : values[i]) + shift_[i];
    activate<T>(values, activation_);
    T* const to = result_ + pixel * shape_.result.pixel_stride;
    CONVX_UNROLL
    for (int i = 0; i < kFilters; i += kNear) {
      const int left = shape_.rows - first_filter_ - filter_step(i);
      if (shape_.result_pieces && left >= kNear) {
        Vector<T, kNear> piece;
        CONVX_UNROLL
        for (int j = 0; j < kNear; ++j) piece.element[j] = narrow<T>(values[i + j]);
        store_whole<T, kNear>(to + filter_step(i), piece);
      } else {
        CONVX_UNROLL
        for (int j = 0; j < kNear; ++j) {
          if (j < left) to[filter_step(i) + j] = narrow<T>(values[i + j]);
        }
      }
    }
  }

  CONVX_DEVICE void make_finite(float (&values)[kFilters], uint32_t pixel) const {
    bool all = true;
    CONVX_UNROLL
    for (int i = 0; i < kFilters; ++i) all = all && is_finite(values[i]);
    if (all) return;
    // By turns, as the code is long.
    CONVX_NO_UNROLL
    for (int turn = 0; turn < kFilters; ++turn) {
      const int filter = first_filter_ + filter_step(turn);
      const float first =
          is_finite(values[0]) ? values[0] : exact_sum(shape_, filters_, source_, sums_.group, filter, pixel);
      CONVX_UNROLL
      for (int i = 0; i + 1 < kFilters; ++i) values[i] = values[i + 1];
      values[kFilters - 1] = first;
    }
  }

  Sums& sums_;
  const Shape& shape_;
  const T *filters_, *source_;
  Activation activation_;
  T* result_;
  unsigned char* shared_;
  int first_filter_;
  int64_t group_filter_;
  float shift_[kFilters];
};

}  // namespace convx::pointwise::tensor
