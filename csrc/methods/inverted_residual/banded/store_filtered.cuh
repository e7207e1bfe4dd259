// Filtered chunks on their way to memory, in channels_last: of 32 planes a lane has eight neighbouring
// channels of a pixel (channel_of_plane in geometry.h).
#pragma once
#include "methods/inverted_residual/banded/plane_sums.cuh"
#include "platform/gpu/fragments.h"

namespace convx::inverted_residual::banded {

// Of a warp: every so many of the tile's rows of results, eight pixels at a time.
template <class T, class Form>
class StoreFiltered {
 public:
  static_assert(!Form::kIsFlat, "rows of results are rows of shared memory");
  static constexpr int kHalves = Form::kNear / 8, kRows = Form::kShape.most_rows;
  static constexpr int kItems = (kRows * kHalves + Form::kWarps - 1) / Form::kWarps;

  CONVX_DEVICE StoreFiltered(const Arguments<T>& a, const Window& w, unsigned char* filtered, int /*rank*/,
                             int warp, int lane)
      : channel_(lane % 4 * 8),
        result_(a.result + static_cast<int64_t>(w.image) * a.out_height * a.out_width * a.expanded_channels) {
    const int rows = w.rows(a), columns = w.columns<Form>(a);
    CONVX_UNROLL
    for (int i = 0; i < kItems; ++i) {
      const int item = warp + i * Form::kWarps, row = min(item / kHalves, kRows - 1), half = item % kHalves;
      from_[i] = shared_place(filtered + lane * Form::kFilteredPitch + result_place(row, half));
      const int column = half * 8 + lane / 4;
      const int pixel = (w.tile_row + row) * a.out_width + w.tile_column + column;
      to_[i] = item / kHalves < rows && column < columns ? pixel * a.expanded_channels + channel_ : -1;
    }
  }

  CONVX_DEVICE void add(const Arguments<T>& a, SharedPlace /*stage*/, int filtered_at,
                        int first_channel) const {
    CONVX_UNROLL
    for (int group = 0; group < Form::kChunk / 32; ++group) {
      const int first = first_channel + group * 32;
      const bool is_there = first + channel_ < a.expanded_channels;
      CONVX_UNROLL
      for (int i = 0; i < kItems; ++i) {
        uint32_t words[4];
        load_columns(from_[i] + filtered_at + group * 32 * Form::kFilteredPitch, words);
        if (is_there && to_[i] >= 0) {
          store_whole<uint32_t, 4>(reinterpret_cast<uint32_t*>(result_ + to_[i] + first),
                                   {{words[0], words[1], words[2], words[3]}});
        }
      }
    }
  }

  // Sums of planes that were filtered value by value.
  CONVX_DEVICE void sum_exactly(const Arguments<T>& a, const Window& w, const unsigned char* filtered,
                                int first_channel) const {
    const int rows = w.rows(a), columns = w.columns<Form>(a);
    for (int plane = threadIdx.x; plane < Form::kChunk; plane += blockDim.x) {
      float sum = 0;
      CONVX_NO_UNROLL
      for (int pixel = 0; pixel < rows * columns; ++pixel) {
        const int row = pixel / columns, column = pixel % columns;
        sum += widen(reinterpret_cast<const T*>(filtered + plane * Form::kFilteredPitch +
                                                result_place(row, column / 8))[column % 8]);
      }
      PlaneSums<T, Form>::store_sum(a, w, first_channel, plane, sum);
    }
  }

 private:
  // Of a channel's plane in shared memory: eight results of a row.
  CONVX_DEVICE static int result_place(int row, int half) {
    return kHalves == 2 ? half_of(row, half) : row * 16;
  }

  int channel_;
  T* result_;
  SharedPlace from_[kItems];
  int to_[kItems];  // in elements; -1 of what is outside the image or the tile
};

}  // namespace convx::inverted_residual::banded
