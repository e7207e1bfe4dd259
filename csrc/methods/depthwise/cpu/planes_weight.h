// NCHW weight gradient of the common filters: a band of input rows and of output-gradient rows is packed,
// lanes run along columns, the sums of a few filter rows stay in registers while the band is walked from top
// to bottom.
#pragma once
#include "methods/depthwise/cpu/planes_rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// Where a plane's elements lie.
struct PlaneView {
  int64_t plane, step;  // first element, distance of neighbours in a row
  static PlaneView of(const Job& job, int64_t image, int64_t channel, int64_t channels, int64_t elements) {
    if (job.channels_last) return {image * elements * channels + channel, channels};
    return {(image * channels + channel) * elements, 1};
  }
};

// What both weight gradients of NCHW share. A task is (slice, input channel); a slice is a part of the rows
// of the whole batch, cut into bands that fit the cache.
template <class T, class Kernel>
struct PlaneWeight {
  using A = Accumulator<T>;

  const Job& job;
  int64_t taps = job.filter_height * job.filter_width;

  int64_t tasks() const { return job.slices * job.channels; }

  void run(int64_t begin, int64_t end) const {
    Kernel kernel{job};
    const int64_t all_rows = job.batch * job.target_height;
    const int64_t partial_bytes = round_up(job.multiplier * kernel.partial_elements(), kLanes<A>) * sizeof(A);
    Scratch sums(partial_bytes), packed(kernel.packed_elements() * static_cast<int64_t>(sizeof(A)));
    A* partial = sums.as<A>();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t slice = task / job.channels, channel = task % job.channels;
      for (int64_t i = 0; i < job.multiplier * kernel.partial_elements(); ++i) partial[i] = A(0);
      const int64_t slice_end = all_rows * (slice + 1) / job.slices;
      for (int64_t row = all_rows * slice / job.slices; row < slice_end;) {
        const int64_t image = row / job.target_height, row_begin = row % job.target_height;
        const int64_t row_end =
            minimum(minimum(row_begin + kernel.band_rows, job.target_height), row_begin + slice_end - row);
        const PlaneView from =
            PlaneView::of(job, image, channel, job.channels, job.source_height * job.source_width);
        kernel.pack_input(static_cast<const T*>(job.source) + from.plane, row_begin, row_end, packed.as<A>(),
                          from.step);
        for (int64_t m = 0; m < job.multiplier; ++m) {
          const PlaneView to =
              PlaneView::of(job, image, channel * job.multiplier + m, job.channels * job.multiplier,
                            job.target_height * job.target_width);
          kernel.add(static_cast<const T*>(job.target_grad) + to.plane, row_begin, row_end, packed.as<A>(),
                     partial + m * kernel.partial_elements(), to.step);
        }
        row += row_end - row_begin;
      }
      const int64_t first = channel * job.multiplier * taps;
      for (int64_t i = 0; i < job.multiplier * taps; ++i) {
        const A value = kernel.total(partial + i / taps * kernel.partial_elements(), i % taps);
        if (job.slices == 1) {
          store_one(static_cast<T*>(job.result) + first + i, value);
        } else {
          static_cast<A*>(job.workspace)[slice * job.channels * job.multiplier * taps + first + i] = value;
        }
      }
    }
  }
};

template <class T, int Filter, int Stride, int L>
struct PlaneWeightRows {
  using A = Accumulator<T>;
  using V = Simd<A, L>;
  static constexpr bool kWide = kRegisters == 32;
  static constexpr int kRows = Filter == 3 ? 3 : kWide ? 3 : (Filter == 5 ? 2 : 1);
  static constexpr int kSteps =
      (kRows + Stride - 1) / Stride;  // output rows that one step of input rows meets

  const Job& job;
  int64_t column_blocks = ceil_divide(job.target_width, L);
  int64_t grad_pitch = round_up(column_blocks * L, kLanes<A>);
  int64_t pitch = round_up(column_blocks * L + (Filter - 1) / Stride, kLanes<A>);
  int64_t row_elements = pitch * Stride;
  int64_t band_rows = minimum(
      job.target_height,
      maximum(8, kBandBytes / ((row_elements * Stride + grad_pitch) * static_cast<int64_t>(sizeof(A)))));

  // Input rows a band needs, and those that the last steps touch with an output row of zeros.
  int64_t source_rows(int64_t rows) const { return (rows + kSteps + 1) * Stride + Filter; }
  int64_t partial_elements() const { return Filter * Filter * L; }
  int64_t packed_elements() const {
    return source_rows(band_rows) * row_elements + (band_rows + 2 * kSteps) * grad_pitch + 4 * kLanes<A>;
  }

  void pack_input(const T* input, int64_t row_begin, int64_t row_end, A* packed, int64_t step) const {
    const int64_t needed = (row_end - row_begin - 1) * Stride + Filter;
    for (int64_t i = 0; i < source_rows(row_end - row_begin); ++i) {
      const int64_t position = row_begin * Stride - job.pad_top + i;
      const bool exists = i < needed && position >= 0 && position < job.source_height;
      const Line<T> line{exists ? input + position * job.source_width * step : nullptr, job.source_width,
                         step};
      pack_row_strided(line, -job.pad_left, packed + i * row_elements, pitch, Stride);
    }
  }

  // Sums of Rows filter rows from first_row on. Step t loads input rows t * Stride … + Stride - 1 (shifted by
  // first_row) and output rows t, t - 1, …: filter row r + Stride * k joins input row r of the step and t -
  // k.
  template <int Rows>
  CONVX_INLINE void filter_rows(const A* packed, const A* grad, int64_t steps, int first_row,
                                A* partial) const {
    constexpr int kBack = (Rows + Stride - 1) / Stride;
    const int64_t blocks_per_sum = rows_summed_apart(steps);
    for (int64_t begin = 0; begin < column_blocks; begin += blocks_per_sum) {
      const int64_t end = minimum(begin + blocks_per_sum, column_blocks);
      V sum[Rows][Filter] = {};
      for (int64_t block = begin; block < end; ++block) {
        const A* source = packed + first_row * row_elements + block * L;
        const A* target = grad + block * L;
        for (int64_t t = 0; t < steps; ++t, source += Stride * row_elements, target += grad_pitch) {
          V dy[kBack];
          CONVX_UNROLLED
          for (int k = 0; k < kBack; ++k) dy[k] = load<L>(target - k * grad_pitch);
          CONVX_UNROLLED
          for (int r = 0; r < (Stride < Rows ? Stride : Rows); ++r) {
            CONVX_UNROLLED
            for (int g = 0; g < Filter; ++g) {
              V x = load<L>(source + r * row_elements + (g % Stride) * pitch + g / Stride);
              keep(x);
              CONVX_UNROLLED
              for (int k = 0; k < kBack; ++k) {
                if (r + Stride * k < Rows) sum[r + Stride * k][g] += x * dy[k];
              }
            }
          }
        }
      }
      CONVX_UNROLLED
      for (int f = 0; f < Rows; ++f) {
        CONVX_UNROLLED
        for (int g = 0; g < Filter; ++g) add_to<L>(partial + ((first_row + f) * Filter + g) * L, sum[f][g]);
      }
    }
  }

  void add(const T* grad_plane, int64_t row_begin, int64_t row_end, A* packed, A* partial,
           int64_t step) const {
    A* grad = packed + source_rows(band_rows) * row_elements + 2 * kLanes<A>;
    const int64_t rows = row_end - row_begin;
    for (int64_t i = -kSteps; i < rows + kSteps; ++i) {
      const bool exists = i >= 0 && i < rows;
      const Line<T> line{exists ? grad_plane + (row_begin + i) * job.target_width * step : nullptr,
                         job.target_width, step};
      pack_row(line, 0, grad + (i + kSteps) * grad_pitch, grad_pitch);
    }
    grad += kSteps * grad_pitch;
    int first_row = 0;
    for (; first_row + kRows <= Filter; first_row += kRows) {
      filter_rows<kRows>(packed, grad, rows + (kRows + Stride - 1) / Stride - 1, first_row, partial);
    }
    constexpr int kRest = Filter % kRows;
    if constexpr (kRest != 0) {
      filter_rows<kRest>(packed, grad, rows + (kRest + Stride - 1) / Stride - 1, first_row, partial);
    }
  }

  A total(const A* partial, int64_t tap) const { return sum_lanes<A, L>(load<L>(partial + tap * L)); }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
