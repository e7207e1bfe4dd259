// From a tile of sums in shared memory to results: bias, activation and stores along rows.
#pragma once
#include "methods/cuconv/tensor/arguments.cuh"
#include "methods/epilogue.cuh"

namespace convx::cuconv::tensor {

template <Precision Kind, class Tile, class T>
class Finish {
 public:
  // sums[filter][kSumPitch]: of the tile's results from Task::origin() on.
  CONVX_DEVICE Finish(const Arguments<T>& a, const Task<Tile, T>& task, const float* sums)
      : a_(a), task_(task), sums_(sums) {}

  CONVX_DEVICE void write() const {
    if (a_.partial != nullptr) {
      float* const plane = a_.partial + static_cast<int64_t>(task_.plane) * a_.results;
      a_.neighbours >= 4 ? write_rows<4, false>(plane) : write_rows<1, false>(plane);
    } else if constexpr (sizeof(T) == 2) {
      a_.neighbours == 8   ? write_rows<8, true>(a_.result)
      : a_.neighbours == 4 ? write_rows<4, true>(a_.result)
                           : write_rows<1, true>(a_.result);
    } else {
      a_.neighbours >= 4 ? write_rows<4, true>(a_.result) : write_rows<1, true>(a_.result);
    }
  }

 private:
  // A thread keeps to Count neighbouring results and goes down the filters.
  template <int Count, bool Last, class R>
  CONVX_DEVICE void write_rows(R* result) const {
    constexpr int kAcross = Tile::kSumPitch / Count;
    constexpr int kDown = Tile::kThreads / kAcross > 0 ? Tile::kThreads / kAcross : 1;
    constexpr int kStep = kDown * kAcross < Tile::kThreads ? kDown * kAcross : Tile::kThreads;
    constexpr int kRows = Count == 1 ? 4 : 1;  // on their way at once
    const int thread = static_cast<int>(threadIdx.x);
    const int first_filter =
        static_cast<int>(task_.group) * a_.filter_count + static_cast<int>(task_.row_tile) * Tile::kFilters;
    const int filters =
        min(Tile::kFilters, a_.filter_count - static_cast<int>(task_.row_tile) * Tile::kFilters);
    if (thread >= kStep) return;
    CONVX_NO_UNROLL
    for (int at = thread; at < kDown * kAcross; at += kStep) {
      const int column = at % kAcross * Count;
      const uint32_t pixel = task_.origin() + column;
      if (pixel + Count <= task_.first_pixel || pixel >= task_.end_pixel) continue;
      const bool whole = pixel >= task_.first_pixel && pixel + Count <= task_.end_pixel;
      const uint32_t image = a_.divide_result_plane.quotient(pixel);
      R* const to = result + static_cast<int64_t>(image) * a_.all_filters * a_.result_plane +
                    (pixel - image * a_.divide_result_plane.divisor);
      CONVX_NO_UNROLL
      for (int row = at / kAcross; row < filters; row += kRows * kDown) {
        float values[kRows][Count];
        CONVX_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const int own = min(row + r * kDown, filters - 1);
          take<Count>(sums_ + own * Tile::kSumPitch + column, values[r]);
          if constexpr (Kind == matrix::kSplit) make_exact(own, pixel, values[r]);
          if constexpr (Last) {
            const float shift = a_.bias == nullptr ? 0.0f : widen(a_.bias[first_filter + own]);
            CONVX_UNROLL
            for (int i = 0; i < Count; ++i) values[r][i] += shift;
          }
        }
        R* own = to + static_cast<int64_t>(first_filter + row) * a_.result_plane;
        CONVX_UNROLL
        for (int r = 0; r < kRows; ++r, own += kDown * a_.result_plane) {
          if (row + r * kDown >= filters) break;
          if constexpr (Last) finish_row(values[r], first_filter + row + r * kDown, own, pixel, whole);
          put<Count>(own, values[r], pixel, whole);
        }
      }
    }
  }

  template <int Count>
  CONVX_DEVICE void finish_row(float (&values)[Count], int filter, const T* to, uint32_t pixel,
                               bool whole) const {
    if constexpr (Kind != matrix::kSplit) {
      activate<T>(values, a_.finishing.activation);
    } else {
      finish<T>(
          values, a_.finishing, [&](int) { return filter; },
          [&](T(&residuals)[Count]) {
            if (whole) return read_residuals(a_.finishing, to, residuals);
            const int begin = static_cast<int>(task_.first_pixel - pixel);  // below zero where it is before
            read_residuals(a_.finishing, to, begin, static_cast<int>(task_.end_pixel - pixel), residuals);
          });
    }
  }

  // Sums that are not finite are made again: the parts of an infinity, or of a number that rounds to one, are
  // not numbers.
  template <int Count>
  CONVX_DEVICE void make_exact(int filter, uint32_t pixel, float (&values)[Count]) const {
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) {
      const bool is_result = pixel + i >= task_.first_pixel && pixel + i < task_.end_pixel;
      if (is_result && !(fabsf(values[i]) < INFINITY)) values[i] = exact_sum(filter, pixel + i);
    }
  }

  CONVX_DEVICE float exact_sum(int filter, uint32_t pixel) const {
    const uint32_t image = a_.divide_result_plane.quotient(pixel);
    const int place = static_cast<int>(pixel - image * a_.divide_result_plane.divisor);
    const int row = place / a_.result_width, column = place - row * a_.result_width;
    const int channels = a_.plane_stages * a_.depth * step_channels(Kind);
    const int first = static_cast<int>(task_.plane) * channels, end = min(first + channels, a_.channels);
    const int64_t first_channel = static_cast<int64_t>(image) * a_.all_channels + task_.group * a_.channels;
    float sum = 0;
    CONVX_NO_UNROLL
    for (int tap = 0; tap < a_.taps; ++tap) {
      const int down = tap / a_.filter_width, across = tap - down * a_.filter_width;
      const int y = row * a_.stride_h + down * a_.step_h - a_.top;
      const int x = column * a_.stride_w + across * a_.step_w - a_.left;
      if (y < 0 || y >= a_.source_height || x < 0 || x >= a_.source_width) continue;
      const T* const from = a_.source + first_channel * a_.source_plane + y * a_.source_width + x;
      const T* const weight =
          a_.plain_filters +
          a_.plain.first(task_.group, static_cast<int>(task_.row_tile) * Tile::kFilters + filter, tap);
      CONVX_NO_UNROLL
      for (int channel = first; channel < end; ++channel) {
        sum = multiply_add(weight[channel * a_.plain.channel_step],
                           from[static_cast<int64_t>(channel) * a_.source_plane], sum);
      }
    }
    return sum;
  }

  template <int Count>
  CONVX_DEVICE static void take(const float* from, float (&values)[Count]) {
    constexpr int kRead = Count < 4 ? Count : 4;
    CONVX_UNROLL
    for (int i = 0; i < Count; i += kRead) {
      const Vector<float, kRead> read = *reinterpret_cast<const Vector<float, kRead>*>(from + i);
      CONVX_UNROLL
      for (int j = 0; j < kRead; ++j) values[i + j] = read.element[j];
    }
  }

  template <int Count, class R>
  CONVX_DEVICE void put(R* to, const float (&values)[Count], uint32_t pixel, bool whole) const {
    Vector<R, Count> row;
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) row.element[i] = narrow<R>(values[i]);
    if constexpr (Count == 1) {
      *to = row.element[0];
    } else if (whole) {
      store_whole<R, Count>(to, row);
    } else {
      CONVX_UNROLL
      for (int i = 0; i < Count; ++i) {
        if (pixel + i >= task_.first_pixel && pixel + i < task_.end_pixel) to[i] = row.element[i];
      }
    }
  }

  const Arguments<T>& a_;
  const Task<Tile, T>& task_;
  const float* sums_;
};

}  // namespace convx::cuconv::tensor
