// NCHW forward and input gradient without a stride where rows keep their width: row and column reuse in the
// registers of a CPU (Lu, Zhang and Wang, "Optimizing GPU memory transactions for convolution operations",
// 2020). Lanes run along columns. Each source row is loaded once, from where it is, brought to every column
// of the filter by a shift across two registers, and meets the sums of all target rows that it touches.
#pragma once
#include "methods/depthwise/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

#if CONVX_SIMD_BYTES >= 32  // loads and stores of a part of a vector

// Rows of a band of a plane.
struct ReuseRows {
  const float* source;  // of the plane
  float* target;        // of the band
  int64_t width;
  int64_t source_rows;   // of the plane
  int64_t first;         // source row that the first target row's first tap meets, negative in the padding
  int64_t target_count;  // of the band
};

// A strip of Vectors vectors of columns. Alone: the only one of its plane, with padding on both sides.
template <int Filter, int Vectors, int L, bool Alone>
struct ReuseStrip {
  using V = Simd<float, L>;
  static constexpr int kReach = Filter / 2;
  // Of one vector a row's products are summed apart, since few sums would wait for each other.
  static constexpr bool kApart = Vectors == 1;

  V taps[Filter * Filter];
  bool has_left;      // columns before the strip
  Part last, beside;  // lanes of the strip's last vector, and of the one behind it, that are columns

  // Lanes of the columns of one row, with those beside them.
  CONVX_INLINE void load_row(const float* row, V (&x)[Vectors + 2]) const {
    x[0] = x[Vectors + 1] = V{};
    CONVX_UNROLLED
    for (int v = 0; v < Vectors - 1; ++v) x[v + 1] = load<L>(row + v * L);
    x[Vectors] = load_part<L>(row + (Vectors - 1) * L, last);
    if constexpr (!Alone) {
      if (has_left) x[0] = load<L>(row - L);
      x[Vectors + 1] = load_part<L>(row + Vectors * L, beside);
    }
  }

  // sum[(Step - f) % Filter] is that of the target row which tap row f meets.
  template <int Step, int Column>
  CONVX_INLINE void add_columns(const V (&x)[Vectors + 2], V (&sum)[Filter][Vectors]) const {
    if constexpr (Column < Filter) {
      constexpr int kShift = Column - kReach;
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) {
        V shifted = x[v + 1];
        if constexpr (kShift < 0) shifted = lanes_from<L + kShift, L>(x[v], x[v + 1]);
        if constexpr (kShift > 0) shifted = lanes_from<kShift, L>(x[v + 1], x[v + 2]);
        CONVX_UNROLLED
        for (int f = 0; f < Filter; ++f) {
          sum[(Step - f + Filter) % Filter][v] += shifted * taps[f * Filter + Column];
        }
      }
      add_columns<Step, Column + 1>(x, sum);
    }
  }

  template <int Step>
  CONVX_INLINE void add_row(const float* row, V (&sum)[Filter][Vectors]) const {
    V x[Vectors + 2];
    load_row(row, x);
    if constexpr (kApart) {
      V products[Filter][Vectors];
      CONVX_UNROLLED
      for (int f = 0; f < Filter; ++f) products[f][0] = V{};
      add_columns<Step, 0>(x, products);
      CONVX_UNROLLED
      for (int f = 0; f < Filter; ++f) sum[f][0] += products[f][0];
    } else {
      add_columns<Step, 0>(x, sum);
    }
  }

  // Runs over into the rows behind it, which are stored later, where there are `left` elements to the band's
  // end.
  CONVX_INLINE void store_row(float* row, const V (&sum)[Vectors], int64_t left) const {
    CONVX_UNROLLED
    for (int v = 0; v < Vectors - 1; ++v) store<L>(row + v * L, sum[v]);
    if (Alone && left >= Vectors * L) {
      store<L>(row + (Vectors - 1) * L, sum[Vectors - 1]);
    } else {
      store_part<L>(row + (Vectors - 1) * L, sum[Vectors - 1], last);
    }
  }

  // The sweep's positions Step, Step + Filter, …: adds a source row to the target rows that it touches, of
  // which the first is then complete.
  template <int Step>
  CONVX_INLINE void step(const ReuseRows& rows, int64_t position, V bias, V (&sum)[Filter][Vectors]) const {
    if constexpr (Step < Filter) {
      if (position >= rows.target_count + Filter - 1) return;
      const int64_t source_row = rows.first + position;
      if (source_row >= 0 && source_row < rows.source_rows) {
        add_row<Step>(rows.source + source_row * rows.width, sum);
      }
      constexpr int kDone = (Step + 1) % Filter;
      const int64_t done = position - (Filter - 1);
      if (done >= 0) {
        store_row(rows.target + done * rows.width, sum[kDone], (rows.target_count - done) * rows.width);
      }
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) sum[kDone][v] = bias;
      step<Step + 1>(rows, position + 1, bias, sum);
    }
  }

  void run(ReuseRows rows, int64_t column, float bias_value) const {
    const ReuseStrip strip = *this;  // whose address nothing else knows: stores don't change it
    rows.source += column;
    rows.target += column;
    const V bias = broadcast<V>(bias_value);
    V sum[Filter][Vectors];
    CONVX_UNROLLED
    for (int f = 0; f < Filter; ++f) {
      CONVX_UNROLLED
      for (int v = 0; v < Vectors; ++v) sum[f][v] = bias;
    }
    const int64_t count = rows.target_count + Filter - 1;
    for (int64_t position = 0; position < count; position += Filter) {
      strip.template step<0>(rows, position, bias, sum);
    }
  }
};

// A task is a band of rows of one plane.
template <int Filter, int L>
struct PlaneReuse {
  using V = Simd<float, L>;
  static constexpr int kVectors = kRegisters >= 32 ? 4 : 2;  // most of a strip
  static constexpr int64_t kBandRows = 64;                   // Filter - 1 of a band's rows are read twice

  const Job& job;
  int64_t width = job.target_width;
  int64_t target_channels = job.channels * job.multiplier;
  int64_t bands = ceil_divide(job.target_height, kBandRows);

  int64_t tasks() const { return job.batch * target_channels * bands; }

  template <int Vectors, bool Alone>
  CONVX_INLINE void strip(const ReuseRows& rows, int64_t column, int64_t channel, float bias) const {
    const int64_t left = width - column - (Vectors - 1) * L;
    ReuseStrip<Filter, Vectors, L, Alone> strip;
    const float* weights = static_cast<const float*>(job.weight) + channel * Filter * Filter;
    for (int t = 0; t < Filter * Filter; ++t) {
      strip.taps[t] = broadcast<V>(weights[job.flipped ? Filter * Filter - 1 - t : t]);
    }
    strip.has_left = column > 0;
    strip.last = first_lanes<L>(left);
    strip.beside = first_lanes<L>(left - L);
    strip.run(rows, column, bias);
  }

  template <bool Alone>
  CONVX_INLINE void strips(const ReuseRows& rows, int64_t channel, float bias) const {
    for (int64_t column = 0; column < width; column += kVectors * L) {
      const int64_t vectors = minimum(ceil_divide(width - column, L), kVectors);
      if (vectors == 1) {
        strip<1, Alone>(rows, column, channel, bias);
      } else if (vectors == 2) {
        strip<2, Alone>(rows, column, channel, bias);
      } else if constexpr (kVectors > 2) {
        vectors == 3 ? strip<3, Alone>(rows, column, channel, bias)
                     : strip<4, Alone>(rows, column, channel, bias);
      }
    }
  }

  void run(int64_t begin, int64_t end) const {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image_channel = task / bands, channel = image_channel % target_channels;
      const int64_t source_plane = image_channel / target_channels * job.channels + channel / job.multiplier;
      const int64_t band_begin = job.target_height * (task % bands) / bands;
      const int64_t band_end = job.target_height * (task % bands + 1) / bands;
      const float bias = ChannelEpilogue<float>::parameter(job.epilogue.bias, channel, 0);
      const ReuseRows rows{
          static_cast<const float*>(job.source) + source_plane * job.source_height * width,
          static_cast<float*>(job.result) + (image_channel * job.target_height + band_begin) * width,
          width,
          job.source_height,
          band_begin - job.pad_top,
          band_end - band_begin};
      width <= kVectors* L ? strips<true>(rows, channel, bias) : strips<false>(rows, channel, bias);
      if (job.epilogue.activation != Activation::none || job.epilogue.more != 0) {
        finish_band(channel, rows.target, rows.target_count * width);
      }
    }
  }

  // Apart from the sums, which leave no registers for it; a band is in the nearest cache then.
  void finish_band(int64_t channel, float* target, int64_t count) const {
    const ChannelEpilogue<float> epilogue(job.epilogue, channel, true);
    for (int64_t i = 0; i < count; i += L) {
      const Part part = first_lanes<L>(count - i);
      const V sums = load_part<L>(target + i, part);
      store_part<L>(target + i, epilogue.template operator()<L>(sums, target + i, count - i), part);
    }
  }
};

#endif

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
