// Every depthwise problem, plane by plane: any filter, stride, dilation, padding, channel multiplier and
// layout (elements of a plane lie `step` apart in memory). Rows are packed with their columns dealt out by
// residue, so that the lanes always read neighbours.
#pragma once
#include "methods/depthwise/cpu/planes_weight.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

template <class T>
struct PlaneGeneral {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int kBlocks = 4;  // vectors of columns at a time
  using V = Simd<A, L>;

  // A tap column as the inner loop sees it: where its values start in a packed row.
  struct TapColumn {
    int64_t tap, offset;
  };

  const Job& job;
  bool gradient = job.operation == Operation::input_grad;
  int64_t source_channels = gradient ? job.channels * job.multiplier : job.channels;
  int64_t target_channels = gradient ? job.channels : job.channels * job.multiplier;
  int64_t summed = gradient ? job.multiplier : 1;  // source planes of one target plane
  int64_t reach_h = (job.filter_height - 1) * job.dilation_h,
          reach_w = (job.filter_width - 1) * job.dilation_w;
  // Columns are computed by residue class: of the target when transposed, else there is one class.
  int64_t classes = job.transposed ? job.stride_w : 1;
  int64_t residues = job.transposed ? 1 : job.stride_w;
  int64_t first_q = job.transposed ? job.pad_left / job.stride_w : 0;
  int64_t back = job.transposed ? reach_w / job.stride_w : 0;
  int64_t columns =
      job.transposed ? (job.pad_left + job.target_width - 1) / job.stride_w - first_q + 1 : job.target_width;
  int64_t pitch = round_up(round_up(columns, kBlocks* L) + reach_w / job.stride_w, L);
  int64_t row_elements = pitch * residues;
  int64_t finished_elements = round_up(columns, kBlocks* L) * classes + 2 * L;
  int64_t band_rows =
      minimum(job.target_height, maximum(maximum(8, reach_h), kBandBytes / (row_elements * 4)));
  int64_t bands = ceil_divide(job.target_height, band_rows);

  int64_t tasks() const { return job.batch * target_channels * bands; }

  // First source row that target rows from `row` on need.
  int64_t first_source(int64_t row) const {
    return job.transposed ? floor_divide(row + job.pad_top - reach_h, job.stride_h)
                          : row * job.stride_h - job.pad_top;
  }
  int64_t source_rows(int64_t rows) const {
    return job.transposed ? (rows - 1 + reach_h) / job.stride_h + 2 : (rows - 1) * job.stride_h + reach_h + 1;
  }

  void list_taps(TapColumn* taps, int64_t* class_begin) const {
    int64_t count = 0;
    for (int64_t residue = 0; residue < classes; ++residue) {
      class_begin[residue] = count;
      for (int64_t g = 0; g < job.filter_width; ++g) {
        const int64_t shift = g * job.dilation_w;
        if (job.transposed) {
          if (shift % job.stride_w == residue) taps[count++] = {g, back - (shift - residue) / job.stride_w};
        } else {
          taps[count++] = {g, shift % job.stride_w * pitch + shift / job.stride_w};
        }
      }
    }
    class_begin[classes] = count;
  }

  void add_row(const A* packed, int64_t band_first, int64_t row, const A* weight, const TapColumn* taps,
               const int64_t* class_begin, bool first, A* finished) const {
    for (int64_t residue = 0; residue < classes; ++residue) {
      for (int64_t column = 0; column < columns; column += kBlocks * L) {
        A* target = finished + residue * round_up(columns, kBlocks * L) + column;
        V sum[kBlocks];
        CONVX_UNROLLED
        for (int b = 0; b < kBlocks; ++b) sum[b] = first ? V{} : load<L>(target + b * L);
        for (int64_t f = 0; f < job.filter_height; ++f) {
          int64_t position = row * job.stride_h - job.pad_top + f * job.dilation_h;
          if (job.transposed) {
            position = row + job.pad_top - f * job.dilation_h;
            if (position % job.stride_h != 0) continue;
            position /= job.stride_h;
          }
          if (position < 0 || position >= job.source_height) continue;
          const A* source = packed + (position - band_first) * row_elements + column;
          for (int64_t t = class_begin[residue]; t < class_begin[residue + 1]; ++t) {
            const A value = weight[f * job.filter_width + taps[t].tap];
            CONVX_UNROLLED
            for (int b = 0; b < kBlocks; ++b) sum[b] += load<L>(source + taps[t].offset + b * L) * value;
          }
        }
        CONVX_UNROLLED
        for (int b = 0; b < kBlocks; ++b) store<L>(target + b * L, sum[b]);
      }
    }
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t taps = job.filter_height * job.filter_width;
    const int64_t rows = source_rows(band_rows);
    const int64_t class_elements = round_up(columns, kBlocks * L) * classes;
    Scratch rows_memory((rows * row_elements + 2 * L) * static_cast<int64_t>(sizeof(A)));
    Scratch finished_memory((band_rows * class_elements + finished_elements) *
                            static_cast<int64_t>(sizeof(A)));
    Scratch weight_memory(taps * static_cast<int64_t>(sizeof(A)));
    Scratch tap_memory(job.filter_width * static_cast<int64_t>(sizeof(TapColumn)) +
                       (classes + 1) * static_cast<int64_t>(sizeof(int64_t)));
    A* packed = rows_memory.as<A>();
    A* finished = finished_memory.as<A>();
    A* line = finished + band_rows * class_elements;
    A* weight = weight_memory.as<A>();
    TapColumn* tap_columns = tap_memory.as<TapColumn>();
    int64_t* class_begin = reinterpret_cast<int64_t*>(tap_columns + job.filter_width);
    list_taps(tap_columns, class_begin);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / bands / target_channels, channel = task / bands % target_channels;
      const int64_t band_begin = task % bands * band_rows;
      const int64_t band_end = minimum(band_begin + band_rows, job.target_height);
      const int64_t band_first = first_source(band_begin);
      for (int64_t m = 0; m < summed; ++m) {
        const int64_t source_channel = gradient ? channel * job.multiplier + m : channel / job.multiplier;
        const PlaneView from =
            PlaneView::of(job, image, source_channel, source_channels, job.source_height * job.source_width);
        for (int64_t i = 0; i < source_rows(band_end - band_begin); ++i) {
          const int64_t position = band_first + i;
          if (position < 0 || position >= job.source_height) continue;  // never read
          const T* data =
              static_cast<const T*>(job.source) + from.plane + position * job.source_width * from.step;
          pack_row_strided(Line<T>{data, job.source_width, from.step},
                           job.transposed ? first_q - back : -job.pad_left, packed + i * row_elements, pitch,
                           residues);
        }
        const int64_t filter = gradient ? source_channel : channel;
        for (int64_t t = 0; t < taps; ++t) {
          weight[t] =
              widen(static_cast<const T*>(job.weight)[filter * taps + (job.flipped ? taps - 1 - t : t)]);
        }
        for (int64_t row = band_begin; row < band_end; ++row) {
          add_row(packed, band_first, row, weight, tap_columns, class_begin, m == 0,
                  finished + (row - band_begin) * class_elements);
        }
      }
      const Epilogue<A> epilogue{job.bias != nullptr ? widen(static_cast<const T*>(job.bias)[channel]) : A(0),
                                 job.activation};
      const PlaneView to =
          PlaneView::of(job, image, channel, target_channels, job.target_height * job.target_width);
      for (int64_t row = band_begin; row < band_end; ++row) {
        const A* sums = finished + (row - band_begin) * class_elements;
        T* target = static_cast<T*>(job.result) + to.plane + row * job.target_width * to.step;
        if (classes == 1) {
          store_row<T>(sums, target, job.target_width, to.step, epilogue);
          continue;
        }
        // Zips the residue classes together.
        for (int64_t column = 0; column < job.target_width; ++column) {
          const int64_t u = column + job.pad_left - first_q * classes;
          line[column] = sums[u % classes * (class_elements / classes) + u / classes];
        }
        store_row<T>(line, target, job.target_width, to.step, epilogue);
      }
    }
  }
};

// Weight gradient: the same packed rows, one filter row and four taps at a time.
template <class T>
struct PlaneWeightGeneral {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int kTaps = 4;
  using V = Simd<A, L>;

  const Job& job;
  int64_t reach_h = (job.filter_height - 1) * job.dilation_h,
          reach_w = (job.filter_width - 1) * job.dilation_w;
  int64_t grad_pitch = round_up(job.target_width, L);
  int64_t pitch = round_up(grad_pitch + reach_w / job.stride_w, L);
  int64_t row_elements = pitch * job.stride_w;
  int64_t band_rows =
      minimum(job.target_height, maximum(maximum(8, reach_h), kBandBytes / (row_elements * 4)));
  int64_t rows_per_sum = rows_summed_apart(grad_pitch / L);

  int64_t source_rows(int64_t rows) const { return (rows - 1) * job.stride_h + reach_h + 1; }
  int64_t partial_elements() const { return job.filter_height * job.filter_width * L; }
  int64_t packed_elements() const {
    return source_rows(band_rows) * row_elements + band_rows * grad_pitch + 4 * L;
  }

  void pack_input(const T* input, int64_t row_begin, int64_t row_end, A* packed, int64_t step) const {
    for (int64_t i = 0; i < source_rows(row_end - row_begin); ++i) {
      const int64_t position = row_begin * job.stride_h - job.pad_top + i;
      if (position < 0 || position >= job.source_height) continue;  // never read
      pack_row_strided(Line<T>{input + position * job.source_width * step, job.source_width, step},
                       -job.pad_left, packed + i * row_elements, pitch, job.stride_w);
    }
  }

  template <int Taps>
  CONVX_INLINE void taps(const A* packed, const A* grad, int64_t row_begin, int64_t row_end, int64_t f,
                         int64_t g, A* partial) const {
    int64_t offset[Taps];
    A* target = partial + (f * job.filter_width + g) * L;
    CONVX_UNROLLED
    for (int t = 0; t < Taps; ++t) {
      const int64_t shift = (g + t) * job.dilation_w;
      offset[t] = shift % job.stride_w * pitch + shift / job.stride_w;
    }
    for (int64_t begin = row_begin; begin < row_end; begin += rows_per_sum) {
      const int64_t end = minimum(begin + rows_per_sum, row_end);
      V sum[Taps] = {};
      for (int64_t row = begin; row < end; ++row) {
        const int64_t position = row * job.stride_h - job.pad_top + f * job.dilation_h;
        if (position < 0 || position >= job.source_height) continue;
        const A* source = packed + ((row - row_begin) * job.stride_h + f * job.dilation_h) * row_elements;
        const A* dy = grad + (row - row_begin) * grad_pitch;
        for (int64_t column = 0; column < grad_pitch; column += L) {
          const V d = load<L>(dy + column);
          CONVX_UNROLLED
          for (int t = 0; t < Taps; ++t) sum[t] += d * load<L>(source + offset[t] + column);
        }
      }
      CONVX_UNROLLED
      for (int t = 0; t < Taps; ++t) add_to<L>(target + t * L, sum[t]);
    }
  }

  void add(const T* grad_plane, int64_t row_begin, int64_t row_end, A* packed, A* partial,
           int64_t step) const {
    A* grad = packed + source_rows(band_rows) * row_elements + 2 * L;
    for (int64_t row = row_begin; row < row_end; ++row) {
      pack_row(Line<T>{grad_plane + row * job.target_width * step, job.target_width, step}, 0,
               grad + (row - row_begin) * grad_pitch, grad_pitch);
    }
    for (int64_t f = 0; f < job.filter_height; ++f) {
      int64_t g = 0;
      for (; g + kTaps <= job.filter_width; g += kTaps) {
        taps<kTaps>(packed, grad, row_begin, row_end, f, g, partial);
      }
      for (; g < job.filter_width; ++g) taps<1>(packed, grad, row_begin, row_end, f, g, partial);
    }
  }

  A total(const A* partial, int64_t tap) const { return sum_lanes<A, L>(load<L>(partial + tap * L)); }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
