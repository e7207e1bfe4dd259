// Weight gradient of nchw depthwise convolution: the sums of all taps stay in registers while a warp walks
// over strips of rows. Each input row is loaded once for all the output rows it meets (row reuse) and the
// columns at a strip's edges come from the neighbouring lanes (column reuse).
#pragma once
#include "../exact_products.cuh"
#include "../packed.cuh"
#include "geometry.h"
#include "methods/sums.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise {

struct StripWeightArguments {
  const void* input;
  const void* output_grad;
  void* result;  // T with one slice, partial sums [slice][channel][tap] with more
  int channels, slices;
  int in_height, in_width, out_height, out_width;
  int padding_top;
  int first_column;  // input column of strip 0's first own column
  int lead, strips, segment_lanes, segments;
  int64_t units;
  FastDivide tiles, groups;
};

// One bit for each of the columns [column, column + N) that lies in [0, width); of aligned strips, which are
// wholly inside or outside, the lowest alone.
template <bool Aligned, int N>
CONVX_DEVICE uint32_t columns_inside(int column, int width) {
  uint32_t mask = 0;
  CONVX_UNROLL
  for (int i = 0; i < (Aligned ? 1 : N); ++i) {
    if (static_cast<unsigned>(column + i) < static_cast<unsigned>(width)) mask |= 1u << i;
  }
  return mask;
}

template <bool Aligned, int Words, class T>
CONVX_DEVICE Packed<Words> load_strip_words(const T* address, uint32_t mask) {
  if constexpr (!Aligned) return load_packed<Words>(address, mask);
  Packed<Words> strip{};
  if (mask != 0) strip = load_packed<Words>(address);
  return strip;
}

// The Size input columns that a strip's outputs read, of which the first Left belong to the lane before and
// the last ones, past Own, to the lane after.
template <class T, int Lanes, int Left, int Own, int Size>
CONVX_DEVICE void exchange_strip_columns(const Packed<Own / kPerWord<T>>& strip, int before, int after,
                                         float (&window)[Size]) {
  constexpr int kRight = Size - Left - Own > 0 ? Size - Left - Own : 0;
  static_assert(Left <= Own && kRight <= Own, "the halo spans one neighbour");
  constexpr int kOwnWords = Own / kPerWord<T>;
  constexpr int kLeftWords = (Left + kPerWord<T> - 1) / kPerWord<T>;
  constexpr int kRightWords = (kRight + kPerWord<T> - 1) / kPerWord<T>;
  Packed<kLeftWords + kOwnWords + kRightWords> row;
  CONVX_UNROLL
  for (int i = 0; i < kLeftWords; ++i) {
    row.word[i] = shuffle<Lanes>(strip.word[kOwnWords - kLeftWords + i], before);
  }
  CONVX_UNROLL
  for (int i = 0; i < kOwnWords; ++i) row.word[kLeftWords + i] = strip.word[i];
  CONVX_UNROLL
  for (int i = 0; i < kRightWords; ++i) {
    row.word[kLeftWords + kOwnWords + i] = shuffle<Lanes>(strip.word[i], after);
  }
  CONVX_UNROLL
  for (int i = 0; i < Size; ++i) window[i] = row.template get<T>(kLeftWords * kPerWord<T> + i - Left);
}

// Columns: input columns of a strip. Ahead: input rows whose loads are in flight. Block = (channel, slice of
// the units), channel fastest, so that neighbouring blocks read neighbouring planes.
template <class T, int Lanes, int Filter, int Stride, int Columns, bool Aligned, int Ahead>
CONVX_KERNEL((kStripWeightThreads<Lanes, Filter, Columns, Aligned>), 1)
strip_weight_kernel(StripWeightArguments arguments) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  const StripWeightArguments& a = arguments;
  constexpr int kRows = kStripWeightRows, kInputRows = (kRows - 1) * Stride + Filter, kTaps = Filter * Filter;
  constexpr int kOutputs = Columns / Stride, kWindow = (kOutputs - 1) * Stride + Filter;
  constexpr int kWords = Columns / kPerWord<T>, kGradWords = (kOutputs + kPerWord<T> - 1) / kPerWord<T>;
  constexpr bool kWholeGradWords = Aligned && kOutputs % kPerWord<T> == 0;  // else one 16-bit element
  const int lane = threadIdx.x % Lanes, warp = threadIdx.x / Lanes, warps = blockDim.x / Lanes;
  const int channel = blockIdx.x % a.channels, slice = blockIdx.x / a.channels;
  const int segment = lane / a.segment_lanes, in_segment = lane - segment * a.segment_lanes;
  const bool reads = segment < a.segments;
  const bool owns = reads && in_segment >= a.lead && in_segment < a.lead + a.strips;
  const int before = (lane + Lanes - 1) % Lanes, after = (lane + 1) % Lanes;
  const int first_unit = static_cast<int>(a.units * slice / a.slices);
  const int end_unit = static_cast<int>(a.units * (slice + 1) / a.slices);
  const int64_t in_plane = static_cast<int64_t>(a.in_height) * a.in_width;
  const int64_t out_plane = static_cast<int64_t>(a.out_height) * a.out_width;

  take_turn();
  float sum[kTaps] = {};
  for (int warp_unit = first_unit + warp * a.segments; warp_unit < end_unit;
       warp_unit += warps * a.segments) {
    const bool in_range = warp_unit + segment < end_unit;
    const int unit = in_range ? warp_unit + segment : warp_unit;
    const int row_group = a.tiles.quotient(unit), tile = unit - row_group * static_cast<int>(a.tiles.divisor);
    const int image = a.groups.quotient(row_group);
    const int out_row = (row_group - image * static_cast<int>(a.groups.divisor)) * kRows;
    const int in_row = out_row * Stride - a.padding_top;
    const int strip = tile * a.strips + in_segment - a.lead;
    const int in_column = a.first_column + strip * Columns, out_column = strip * kOutputs;
    const int64_t plane = static_cast<int64_t>(image) * a.channels + channel;
    const T* input = static_cast<const T*>(a.input) + plane * in_plane + in_row * a.in_width + in_column;
    const T* output_grad =
        static_cast<const T*>(a.output_grad) + plane * out_plane + out_row * a.out_width + out_column;
    const uint32_t input_mask =
        reads && in_range ? columns_inside<Aligned, Columns>(in_column, a.in_width) : 0;
    const uint32_t grad_mask =
        owns && in_range ? columns_inside<Aligned, kOutputs>(out_column, a.out_width) : 0;

    Packed<kWords> input_strip[kInputRows];
    Packed<kGradWords> grad_strip[kRows];
    const auto load_row = [&](int i) {
      const bool inside = static_cast<unsigned>(in_row + i) < static_cast<unsigned>(a.in_height);
      input_strip[i] = load_strip_words<Aligned, kWords>(input + i * a.in_width, inside ? input_mask : 0);
      if (i % Stride == 0 && i / Stride < kRows) {
        const int row = i / Stride;
        grad_strip[row] = load_strip_words<kWholeGradWords, kGradWords>(
            output_grad + row * a.out_width, out_row + row < a.out_height ? grad_mask : 0);
      }
    };
    CONVX_UNROLL
    for (int i = 0; i < Ahead && i < kInputRows; ++i) load_row(i);
    float grad[kRows][kOutputs];
    CONVX_UNROLL
    for (int i = 0; i < kInputRows; ++i) {
      if (i + Ahead < kInputRows) load_row(i + Ahead);
      float window[kWindow];
      exchange_strip_columns<T, Lanes, Filter / 2, Columns>(input_strip[i], before, after, window);
      if (i % Stride == 0 && i / Stride < kRows) {
        CONVX_UNROLL
        for (int v = 0; v < kOutputs; ++v) grad[i / Stride][v] = grad_strip[i / Stride].template get<T>(v);
      }
      CONVX_UNROLL
      for (int r = 0; r < Filter; ++r) {
        // Input row i is tap row r of output row (i - r) / Stride.
        if (i >= r && (i - r) % Stride == 0 && (i - r) / Stride < kRows) {
          CONVX_UNROLL
          for (int v = 0; v < kOutputs; ++v) {
            CONVX_UNROLL
            for (int q = 0; q < Filter; ++q) {
              float& tap = sum[r * Filter + q];
              tap = multiply_add(window[v * Stride + q], grad[(i - r) / Stride][v], tap);
            }
          }
        }
      }
    }
  }

  // Lanes beside the strips met zeros alone.
  CONVX_UNROLL
  for (int tap = 0; tap < kTaps; ++tap) sum[tap] = owns ? float(sum[tap]) : 0.0f;
  constexpr int kMostWarps = kStripWeightThreads<Lanes, Filter, Columns, Aligned> / 32;
  CONVX_SHARED(float, warp_sums, [kMostWarps][kTaps]);
  constexpr int kBatch = kTaps < 32 ? kTaps : 32;  // taps summed by one warp_totals
  CONVX_UNROLL
  for (int first = 0; first < kTaps; first += kBatch) {
    constexpr int kLast = kTaps % kBatch == 0 ? kBatch : kTaps % kBatch;
    if (first + kBatch <= kTaps) {
      const float total = warp_totals<Lanes, kBatch>(sum + first, lane);
      if (lane < kBatch) warp_sums[warp][first + lane] = total;
    } else {
      const float total = warp_totals<Lanes, kLast>(sum + first, lane);
      if (lane < kLast) warp_sums[warp][first + lane] = total;
    }
  }
  block_barrier();
  const StripWeightArguments& end = read_anew(arguments);
  uint32_t block = blockIdx.x;
  make_opaque(block);  // nothing of what follows waits in registers, which are scarce until here
  const int end_channel = block % end.channels, end_slice = block / end.channels;
  // The slice's products of one tap, of which each lane takes some columns.
  const auto exact_sum = [&](int tap) {
    const int first = static_cast<int>(end.units * end_slice / end.slices);
    const int last = static_cast<int>(end.units * (end_slice + 1) / end.slices);
    float sum = 0;
    CONVX_NO_UNROLL
    for (int unit = first; unit < last; ++unit) {
      const int row_group = end.tiles.quotient(unit), image = end.groups.quotient(row_group);
      const int out_row = (row_group - image * static_cast<int>(end.groups.divisor)) * kRows;
      const int tile = unit - row_group * static_cast<int>(end.tiles.divisor);
      const int columns = end.strips * kOutputs;
      const int64_t plane = static_cast<int64_t>(image) * end.channels + end_channel;
      const ExactProducts<T> products{
          static_cast<const T*>(end.input) + plane * end.in_height * end.in_width,
          static_cast<const T*>(end.output_grad) + plane * end.out_height * end.out_width,
          end.in_height,
          end.in_width,
          end.out_height,
          end.out_width,
          end.in_width,
          end.out_width,
          1,
          1,
          Stride,
          Stride,
          tap / Filter - end.padding_top,
          tap % Filter - Filter / 2 + end.first_column};
      CONVX_NO_UNROLL
      for (int row = out_row; row < out_row + kRows; ++row) {
        sum += products.of_row(row, tile * columns + lane, (tile + 1) * columns, Lanes);
      }
    }
    return segment_sum<Lanes, Lanes>(sum);
  };
  CONVX_NO_UNROLL
  for (int tap = warp; tap < kTaps; tap += warps) {
    float total = 0;
    for (int i = 0; i < warps; ++i) total += warp_sums[i][tap];
    if (!is_finite(total)) total = exact_sum(tap);
    if (lane != 0) continue;
    const int64_t target = (static_cast<int64_t>(end_slice) * end.channels + end_channel) * kTaps + tap;
    if (end.slices == 1) {
      static_cast<T*>(end.result)[target] = narrow<T>(total);
    } else {
      static_cast<float*>(end.result)[target] = total;
    }
  }
}

}  // namespace convx::depthwise
