// Every depthwise problem, plane by plane: any filter, stride, dilation, padding, channel multiplier and
// layout (elements of a plane lie `step` apart in memory). Of the source rows that a band of target rows
// meets, the columns that taps meet are packed, so that the lanes always read neighbours (columns.h).
#pragma once
#include "methods/depthwise/cpu/planes_weight.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// Target rows of a band of packed source rows of so many elements each: enough to use most rows again.
CONVX_INLINE int64_t general_band_rows(const Job& job, int64_t row_elements) {
  const int64_t reach = (job.filter_height - 1) * job.dilation_h;
  return minimum(job.target_height, maximum(maximum(8, reach), kBandBytes / (maximum(row_elements, 1) * 4)));
}

// The source rows that the taps of a band of target rows meet, and the slots that they are packed in: one
// after another, but for rows in between that no tap meets where those are most.
class BandRows {
 public:
  BandRows(const Job& job, int64_t band_rows, int64_t row_elements)
      : rule_{job.pad_top, job.stride_h, job.dilation_h, job.source_height, job.transposed},
        taps_(job.filter_height),
        band_rows_(band_rows),
        row_elements_(row_elements),
        memory_((job.source_height + most(job, band_rows) + band_rows * job.filter_height) *
                static_cast<int64_t>(sizeof(int64_t))),
        slot_of_row_(memory_.as<int64_t>()),
        rows_(slot_of_row_ + job.source_height),
        offsets_(rows_ + most(job, band_rows)) {
    for (int64_t row = 0; row < job.source_height; ++row) slot_of_row_[row] = -1;
  }

  // Slots of a band at most.
  static int64_t most(const Job& job, int64_t band_rows) {
    const int64_t reach = (job.filter_height - 1) * job.dilation_h;
    const int64_t span = job.transposed ? (band_rows - 1 + reach) / job.stride_h + 1
                                        : (band_rows - 1) * job.stride_h + reach + 1;
    return minimum(minimum(span, job.source_height), 2 * band_rows * job.filter_height);
  }

  void list(int64_t begin, int64_t end) {
    if (begin == begin_ && end == end_) return;
    begin_ = begin;
    end_ = end;
    for (int64_t i = 0; i < count_; ++i) slot_of_row_[rows_[i]] = -1;
    count_ = 0;
    const int64_t first = rule_.first_source(begin, taps_), last = rule_.last_source(end - 1, taps_);
    const bool all = last - first < 2 * (end - begin) * taps_;
    for (int64_t row = first; all && row <= last; ++row) add(row);
    for (int64_t tap = 0; tap < taps_; ++tap) {
      for (int64_t target = begin; target < end; ++target) {
        const int64_t row = rule_.source(target, tap);
        if (row >= 0 && slot_of_row_[row] < 0) add(row);
        offsets_[tap * band_rows_ + target - begin] = row < 0 ? -1 : slot_of_row_[row] * row_elements_;
      }
    }
  }
  int64_t count() const { return count_; }
  int64_t row(int64_t slot) const { return rows_[slot]; }
  // Of the packed rows that a tap meets at each target row of the band; -1 outside the image.
  const int64_t* offsets(int64_t tap) const { return offsets_ + tap * band_rows_; }

 private:
  void add(int64_t row) {
    slot_of_row_[row] = count_;
    rows_[count_++] = row;
  }

  AxisRule rule_;
  int64_t taps_, band_rows_, row_elements_;
  Scratch memory_;
  int64_t *slot_of_row_, *rows_, *offsets_;
  int64_t begin_ = 0, end_ = 0, count_ = 0;
};

// The columns of one source row that the plan's taps meet.
template <class T>
CONVX_INLINE void pack_planned(const Line<T>& line, const ColumnPlan& columns, Accumulator<T>* packed) {
  for (int64_t i = 0; i < columns.run_count; ++i) {
    const PackedRun& run = columns.runs[i];
    pack_columns(line, run.first, columns.source_step, packed + run.offset, run.count);
  }
}

template <class T>
struct PlaneGeneral {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  static constexpr int kBlocks = 4;  // vectors of columns at a time
  using V = Simd<A, L>;

  const Job& job;
  const ColumnPlan& columns = *job.columns;
  bool gradient = job.operation == Operation::input_grad;
  int64_t source_channels = gradient ? job.channels * job.multiplier : job.channels;
  int64_t target_channels = gradient ? job.channels : job.channels * job.multiplier;
  int64_t summed = gradient ? job.multiplier : 1;  // source planes of one target plane
  int64_t sums_of_row = columns.target_count * columns.lanes;
  int64_t band_rows = general_band_rows(job, columns.elements);
  int64_t bands = ceil_divide(job.target_height, band_rows);

  int64_t tasks() const { return job.batch * target_channels * bands; }

  // Blocks vectors of one row of targets, the row-th of the band.
  template <int Blocks>
  CONVX_INLINE void add_columns(const A* packed, const BandRows& rows, int64_t row, const A* weight,
                                const TargetColumns& targets, bool first, A* sums) const {
    V sum[Blocks];
    CONVX_UNROLLED
    for (int b = 0; b < Blocks; ++b) sum[b] = first ? V{} : load<L>(sums + b * L);
    for (int64_t f = 0; f < job.filter_height; ++f) {
      const int64_t offset = rows.offsets(f)[row];
      if (offset < 0) continue;
      const A* source = packed + offset;
      for (int64_t t = targets.taps_begin; t < targets.taps_end; ++t) {
        const A value = weight[f * job.filter_width + columns.taps[t].tap];
        CONVX_UNROLLED
        for (int b = 0; b < Blocks; ++b) sum[b] += load<L>(source + columns.taps[t].offset + b * L) * value;
      }
    }
    CONVX_UNROLLED
    for (int b = 0; b < Blocks; ++b) store<L>(sums + b * L, sum[b]);
  }

  CONVX_INLINE void add_row(const A* packed, const BandRows& rows, int64_t row, const A* weight, bool first,
                            A* sums) const {
    for (int64_t i = 0; i < columns.target_count; ++i, sums += columns.lanes) {
      int64_t column = 0;
      for (; column + kBlocks * L <= columns.lanes; column += kBlocks * L) {
        add_columns<kBlocks>(packed + column, rows, row, weight, columns.targets[i], first, sums + column);
      }
      for (; column < columns.lanes; column += L) {
        add_columns<1>(packed + column, rows, row, weight, columns.targets[i], first, sums + column);
      }
    }
  }

  // line: memory for a row of targets.
  CONVX_INLINE void finish_row(const A* sums, T* target, int64_t step, const ChannelEpilogue<T>& epilogue,
                               A* line) const {
    if (columns.target_step == 1 && columns.target_count == 1) {
      return store_row<T>(sums, target, job.target_width, step, epilogue);
    }
    zero_over(line, job.target_width);
    for (int64_t i = 0; i < columns.target_count; ++i, sums += columns.lanes) {
      const TargetColumns& targets = columns.targets[i];
      for (int64_t lane = 0; lane < targets.count; ++lane) {
        line[targets.first + lane * columns.target_step] = sums[lane];
      }
    }
    store_row<T>(line, target, job.target_width, step, epilogue);
  }

  void run(int64_t begin, int64_t end) const {
    const int64_t taps = job.filter_height * job.filter_width;
    BandRows rows(job, band_rows, columns.elements);
    Scratch rows_memory((BandRows::most(job, band_rows) * columns.elements + 2 * L) *
                        static_cast<int64_t>(sizeof(A)));
    Scratch sums_memory((band_rows * sums_of_row + round_up(job.target_width, L) + L) *
                        static_cast<int64_t>(sizeof(A)));
    Scratch weight_memory(taps * static_cast<int64_t>(sizeof(A)));
    A* packed = rows_memory.as<A>();
    A* sums = sums_memory.as<A>();
    A* line = sums + band_rows * sums_of_row;
    A* weight = weight_memory.as<A>();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / bands / target_channels, channel = task / bands % target_channels;
      const int64_t band_begin = task % bands * band_rows;
      const int64_t band_end = minimum(band_begin + band_rows, job.target_height);
      rows.list(band_begin, band_end);
      for (int64_t m = 0; m < summed; ++m) {
        const int64_t source_channel = gradient ? channel * job.multiplier + m : channel / job.multiplier;
        const PlaneView from =
            PlaneView::of(job, image, source_channel, source_channels, job.source_height * job.source_width);
        for (int64_t slot = 0; slot < rows.count(); ++slot) {
          const T* data =
              static_cast<const T*>(job.source) + from.plane + rows.row(slot) * job.source_width * from.step;
          pack_planned(Line<T>{data, job.source_width, from.step}, columns, packed + slot * columns.elements);
        }
        const int64_t filter = gradient ? source_channel : channel;
        for (int64_t t = 0; t < taps; ++t) {
          weight[t] =
              widen(static_cast<const T*>(job.weight)[filter * taps + (job.flipped ? taps - 1 - t : t)]);
        }
        for (int64_t row = band_begin; row < band_end; ++row) {
          add_row(packed, rows, row - band_begin, weight, m == 0, sums + (row - band_begin) * sums_of_row);
        }
      }
      const ChannelEpilogue<T> epilogue(job.epilogue, channel);
      const PlaneView to =
          PlaneView::of(job, image, channel, target_channels, job.target_height * job.target_width);
      for (int64_t row = band_begin; row < band_end; ++row) {
        T* target = static_cast<T*>(job.result) + to.plane + row * job.target_width * to.step;
        finish_row(sums + (row - band_begin) * sums_of_row, target, to.step, epilogue, line);
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
  const ColumnPlan& columns = *job.columns;
  int64_t band_rows = general_band_rows(job, columns.elements);
  BandRows rows{job, band_rows, columns.elements};

  int64_t partial_elements() const { return job.filter_height * job.filter_width * L; }
  int64_t input_elements() const { return BandRows::most(job, band_rows) * columns.elements + 2 * L; }
  int64_t packed_elements() const { return input_elements() + band_rows * columns.lanes + 2 * L; }

  void pack_input(const T* input, int64_t row_begin, int64_t row_end, A* packed, int64_t step) {
    rows.list(row_begin, row_end);
    for (int64_t slot = 0; slot < rows.count(); ++slot) {
      pack_planned(Line<T>{input + rows.row(slot) * job.source_width * step, job.source_width, step}, columns,
                   packed + slot * columns.elements);
    }
  }

  // A band's part of neighbouring taps of a filter row, which meets the image from the targets `met` on.
  template <int Taps>
  CONVX_INLINE void add_taps(const A* packed, const A* grad, const Joined& met, int64_t f,
                             const PackedTap* taps, A* partial) const {
    const int64_t* offsets = rows.offsets(f);
    const int64_t lanes = columns.lanes;
    const A* source[Taps];
    ColumnRuns runs(job.target_width);
    CONVX_UNROLLED
    for (int t = 0; t < Taps; ++t) {
      source[t] = packed + taps[t].offset;
      runs.add_tap({taps[t].begin, taps[t].end});
    }
    const int64_t columns_per_sum = rows_summed_apart(maximum(met.end - met.begin, 1)) * L;
    for (int64_t run = 0, run_end = 0; run < job.target_width; run = run_end) {
      run_end = minimum(runs.run_end<L>(run), run + columns_per_sum);
      V sum[Taps] = {};
      for (int64_t column = run; column < run_end; column += L) {
        for (int64_t row = met.begin; row < met.end; ++row) {
          const V dy = load<L>(grad + row * lanes + column);
          CONVX_UNROLLED
          for (int t = 0; t < Taps; ++t) sum[t] += dy * load<L>(source[t] + offsets[row] + column);
        }
      }
      const bool is_whole = runs.is_whole<L>(run);
      CONVX_UNROLLED
      for (int t = 0; t < Taps; ++t) {
        if (!is_whole) sum[t] = joined_lanes<A, L>(run, {taps[t].begin, taps[t].end}) ? sum[t] : V{};
        add_to<L>(partial + (f * job.filter_width + taps[t].tap) * L, sum[t]);
      }
    }
  }

  void add(const T* grad_plane, int64_t row_begin, int64_t row_end, A* packed, A* partial,
           int64_t step) const {
    A* grad = packed + input_elements();
    for (int64_t row = row_begin; row < row_end; ++row) {
      pack_row(Line<T>{grad_plane + row * job.target_width * step, job.target_width, step}, 0,
               grad + (row - row_begin) * columns.lanes, columns.lanes);
    }
    const TargetColumns& targets = columns.targets[0];
    for (int64_t f = 0; f < job.filter_height; ++f) {
      const int64_t first = row_begin * job.stride_h - job.pad_top + f * job.dilation_h;
      const Joined met = joined(first, job.stride_h, job.source_height, row_end - row_begin);
      const PackedTap* tap = columns.taps + targets.taps_begin;
      int64_t left = targets.taps_end - targets.taps_begin;
      for (; left >= kTaps; left -= kTaps, tap += kTaps) add_taps<kTaps>(packed, grad, met, f, tap, partial);
      static_assert(kTaps == 4, "what is left is counted here");
      if (left == 3) add_taps<3>(packed, grad, met, f, tap, partial);
      if (left == 2) add_taps<2>(packed, grad, met, f, tap, partial);
      if (left == 1) add_taps<1>(packed, grad, met, f, tap, partial);
    }
  }

  A total(const A* partial, int64_t tap) const { return sum_lanes<A, L>(load<L>(partial + tap * L)); }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
