// From a tile of sums in shared memory to results: bias, activation and stores along rows.
#pragma once
#include "methods/cuconv/tensor/arguments.cuh"
#include "methods/epilogue.cuh"

namespace convx::cuconv::tensor {

template <class Tile, class T>
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
          if constexpr (Last) activate<T>(values[r], a_.activation);
          put<Count>(own, values[r], pixel, whole);
        }
      }
    }
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
