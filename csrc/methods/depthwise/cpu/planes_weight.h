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

// Outputs of one axis, from begin to end - 1, that a tap joins with the image.
struct Joined {
  int64_t begin, end;
};

// Output i of `count` meets pixel first + i * stride.
CONVX_INLINE Joined joined(int64_t first, int64_t stride, int64_t size, int64_t count) {
  const int64_t begin = minimum(first < 0 ? ceil_divide(-first, stride) : 0, count);
  const int64_t end = minimum(first < size ? ceil_divide(size - first, stride) : 0, count);
  return {begin, maximum(begin, end)};
}

// Which lanes of the vector that begins at a column are joined.
template <class A, int L>
CONVX_INLINE auto joined_lanes(int64_t column, const Joined& columns) {
  using I = decltype(Simd<A, L>{} < Simd<A, L>{});
  I lane;
  CONVX_UNROLLED
  for (int i = 0; i < L; ++i) lane[i] = i;
  const I begin = I{} + static_cast<int>(minimum(maximum(columns.begin - column, 0), L));
  const I end = I{} + static_cast<int>(minimum(maximum(columns.end - column, 0), L));
  return (lane >= begin) & (lane < end);
}

// An output gradient's columns in vectors. Zeros stand for what lies outside, and their products with
// infinity and NaN are NaN: vectors in which some tap does not join all lanes are summed apart, and the sums
// lose those lanes.
class ColumnRuns {
 public:
  explicit ColumnRuns(int64_t columns) : all_{0, columns} {}
  void add_tap(const Joined& columns) {
    all_ = {maximum(all_.begin, columns.begin), minimum(all_.end, columns.end)};
  }
  // Whether all taps join all lanes of the vector that begins at this column.
  template <int L>
  bool is_whole(int64_t column) const {
    return column >= all_.begin && column + L <= all_.end;
  }
  // The end of the vectors from this one on that are summed together.
  template <int L>
  int64_t run_end(int64_t column) const {
    return is_whole<L>(column) ? column + (all_.end - column) / L * L : column + L;
  }

 private:
  Joined all_;
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

  // The packed rows of a band, and the output rows that each row of the filter joins with the image.
  struct Band {
    const A *source, *grad;
    int64_t grad_count;
    Joined rows[Filter];
  };
  // The columns of the output gradient that each column of the filter joins with it.
  struct Columns {
    Joined joined[Filter];
    ColumnRuns runs;
    explicit Columns(const Job& job) : runs(job.target_width) {
      for (int g = 0; g < Filter; ++g) {
        joined[g] =
            CONVX_SIMD_NAMESPACE::joined(g - job.pad_left, Stride, job.source_width, job.target_width);
        runs.add_tap(joined[g]);
      }
    }
  };
  // Columns of the output gradient that are summed together. Not whole: of one vector, of which each column
  // of the filter has some lanes.
  struct Run {
    int64_t begin, end;
    bool is_whole;
    decltype(V{} < V{}) lanes[Filter];
  };

  const Job& job;
  int64_t column_blocks = ceil_divide(job.target_width, L);
  int64_t grad_pitch = round_up(column_blocks * L, kLanes<A>);
  int64_t pitch = round_up(column_blocks * L + (Filter - 1) / Stride, kLanes<A>);
  int64_t row_elements = pitch * Stride;
  int64_t band_rows = minimum(
      job.target_height,
      maximum(8, kBandBytes / ((row_elements * Stride + grad_pitch) * static_cast<int64_t>(sizeof(A)))));

  Columns columns{job};

  int64_t source_rows(int64_t rows) const { return (rows - 1) * Stride + Filter; }
  int64_t partial_elements() const { return Filter * Filter * L; }
  int64_t packed_elements() const {
    return source_rows(band_rows) * row_elements + band_rows * grad_pitch + 4 * kLanes<A>;
  }

  void pack_input(const T* input, int64_t row_begin, int64_t row_end, A* packed, int64_t step) const {
    for (int64_t i = 0; i < source_rows(row_end - row_begin); ++i) {
      const int64_t position = row_begin * Stride - job.pad_top + i;
      if (position < 0 || position >= job.source_height) continue;  // never read
      pack_row_strided(Line<T>{input + position * job.source_width * step, job.source_width, step},
                       -job.pad_left, packed + i * row_elements, pitch, Stride);
    }
  }

  // Of the input row that filter row f meets at an output row.
  CONVX_INLINE V input_of(const Band& band, int64_t row, int f, int g, int64_t column) const {
    return load<L>(band.source + (row * Stride + f) * row_elements + column + (g % Stride) * pitch +
                   g / Stride);
  }

  // Output rows begin to end - 1 by filter row first_row + f alone.
  template <int Rows>
  CONVX_INLINE void add_rows(const Band& band, int first_row, int f, int64_t begin, int64_t end,
                             int64_t column, V (&sum)[Rows][Filter]) const {
    for (int64_t row = begin; row < end; ++row) {
      const V dy = load<L>(band.grad + row * grad_pitch + column);
      CONVX_UNROLLED
      for (int g = 0; g < Filter; ++g) sum[f][g] += input_of(band, row, first_row + f, g, column) * dy;
    }
  }

  // Sums of Rows filter rows from first_row on. Step t loads input rows t * Stride … + Stride - 1 and output
  // rows t, t - 1, …: filter row r + Stride * k joins input row r of the step and output row t - k. Rows that
  // the steps would join with ones that don't exist go one by one.
  template <int Rows>
  CONVX_INLINE void filter_rows(const Band& band, int first_row, const Run& run, A* partial) const {
    constexpr int kBack = (Rows + Stride - 1) / Stride, kStepRows = Stride < Rows ? Stride : Rows;
    const Joined* rows = band.rows + first_row;
    int64_t step_begin = 0, step_end = band.grad_count;
    CONVX_UNROLLED
    for (int f = 0; f < Rows; ++f) {
      step_begin = maximum(step_begin, rows[f].begin + f / Stride);
      step_end = minimum(step_end, rows[f].end + f / Stride);
    }
    step_end = maximum(step_begin, step_end);
    V sum[Rows][Filter] = {};
    for (int64_t column = run.begin; column < run.end; column += L) {
      CONVX_UNROLLED
      for (int f = 0; f < Rows; ++f) {
        add_rows(band, first_row, f, rows[f].begin, minimum(step_begin - f / Stride, rows[f].end), column,
                 sum);
      }
      for (int64_t t = step_begin; t < step_end; ++t) {
        V dy[kBack];
        CONVX_UNROLLED
        for (int k = 0; k < kBack; ++k) dy[k] = load<L>(band.grad + (t - k) * grad_pitch + column);
        CONVX_UNROLLED
        for (int r = 0; r < kStepRows; ++r) {
          CONVX_UNROLLED
          for (int g = 0; g < Filter; ++g) {
            V x = input_of(band, t, first_row + r, g, column);
            keep(x);
            CONVX_UNROLLED
            for (int k = 0; k < kBack; ++k) {
              if (r + Stride * k < Rows) sum[r + Stride * k][g] += x * dy[k];
            }
          }
        }
      }
      CONVX_UNROLLED
      for (int f = 0; f < Rows; ++f) {
        add_rows(band, first_row, f, maximum(step_end - f / Stride, rows[f].begin), rows[f].end, column, sum);
      }
    }
    CONVX_UNROLLED
    for (int f = 0; f < Rows; ++f) {
      CONVX_UNROLLED
      for (int g = 0; g < Filter; ++g) {
        if (!run.is_whole) sum[f][g] = run.lanes[g] ? sum[f][g] : V{};
        add_to<L>(partial + ((first_row + f) * Filter + g) * L, sum[f][g]);
      }
    }
  }

  void add(const T* grad_plane, int64_t row_begin, int64_t row_end, A* packed, A* partial,
           int64_t step) const {
    A* grad = packed + source_rows(band_rows) * row_elements + 2 * kLanes<A>;
    const int64_t count = row_end - row_begin;
    for (int64_t i = 0; i < count; ++i) {
      const Line<T> line{grad_plane + (row_begin + i) * job.target_width * step, job.target_width, step};
      pack_row(line, 0, grad + i * grad_pitch, grad_pitch);
    }
    Band band{packed, grad, count, {}};
    for (int f = 0; f < Filter; ++f) {
      band.rows[f] = joined(row_begin * Stride - job.pad_top + f, Stride, job.source_height, count);
    }
    const int64_t columns_per_sum = rows_summed_apart(count) * L;
    Run run;
    for (run.begin = 0; run.begin < job.target_width; run.begin = run.end) {
      run.end = minimum(columns.runs.template run_end<L>(run.begin), run.begin + columns_per_sum);
      run.is_whole = columns.runs.template is_whole<L>(run.begin);
      for (int g = 0; !run.is_whole && g < Filter; ++g) {
        run.lanes[g] = joined_lanes<A, L>(run.begin, columns.joined[g]);
      }
      int first_row = 0;
      for (; first_row + kRows <= Filter; first_row += kRows)
        filter_rows<kRows>(band, first_row, run, partial);
      constexpr int kRest = Filter % kRows;
      if constexpr (kRest != 0) filter_rows<kRest>(band, first_row, run, partial);
    }
  }

  A total(const A* partial, int64_t tap) const { return sum_lanes<A, L>(load<L>(partial + tap * L)); }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
