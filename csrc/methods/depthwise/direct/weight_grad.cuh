// Weight gradient of any depthwise problem. A block owns a rectangle of taps of one output channel (of one
// channel per lane where channels are last) and a slice of the images; its threads walk over output positions
// with the rectangle's sums in registers, four output rows at a time so that an input row is loaded once for
// all the taps that meet it. Sums are joined in a fixed order; slices are added by a second kernel.
#pragma once
#include "methods/depthwise/exact_products.cuh"
#include "methods/sums.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::direct {

constexpr int kWeightThreads = 128;
constexpr int kWeightRows = 4;  // output rows, spacing apart, that a thread takes at a time

struct WeightShape {
  int64_t batch;
  int in_height, in_width, out_height, out_width, out_channels, multiplier;
  int64_t in_image, in_plane, in_row, out_image, out_plane, out_row;  // pitches in elements
  int in_column, out_column;
  int filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w, padding_top, padding_left;
  int spacing, period;  // of rows: see correlate.cuh
  int tap_row_blocks, tap_column_blocks, phases;
  int tile_rows;          // row tiles of an image
  int64_t units, slices;  // units = batch * tile_rows are split evenly over the slices
  int channel_blocks, tap_blocks;
  FastDivide divide_spacing, divide_tile_rows, divide_out_width;
};

template <class T>
struct WeightArguments {
  const T* input;
  const T* output_grad;
  T* result;                  // the sums with one slice,
  Accumulator<T>* workspace;  // with several these: [slice][weight]
  WeightShape shape;
};

// The slice's products of one tap of a channel. Where lanes are not channels, each of a warp's takes some
// columns.
template <int Lanes, class T, bool ChannelsLast>
CONVX_DEVICE Accumulator<T> exact_sum(const WeightArguments<T>& arguments, int lane, int result_channel,
                                      int filter_row, int filter_column) {
  using A = Accumulator<T>;
  const WeightArguments<T>& end = read_anew(arguments);
  const WeightShape& shape = end.shape;
  const int64_t slice = blockIdx.x / shape.channel_blocks / shape.tap_blocks;
  const int64_t first = shape.units * slice / shape.slices;
  const int64_t last = shape.units * (slice + 1) / shape.slices;
  A sum = 0;
  CONVX_NO_UNROLL
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t image = unit / shape.tile_rows;
    const int tile = static_cast<int>(unit - image * shape.tile_rows);
    const int group = shape.divide_spacing.quotient(tile);
    const int u = group * shape.spacing * kWeightRows + tile - group * shape.spacing;
    const ExactProducts<T> products{
        end.input + image * shape.in_image + result_channel / shape.multiplier * shape.in_plane,
        end.output_grad + image * shape.out_image + result_channel * shape.out_plane,
        shape.in_height,
        shape.in_width,
        shape.out_height,
        shape.out_width,
        shape.in_row,
        shape.out_row,
        shape.in_column,
        shape.out_column,
        shape.stride_h,
        shape.stride_w,
        filter_row * shape.dilation_h - shape.padding_top,
        filter_column * shape.dilation_w - shape.padding_left};
    CONVX_NO_UNROLL
    for (int t = 0; t < kWeightRows; ++t) {
      sum += products.of_row(u + shape.spacing * t, ChannelsLast ? 0 : lane, shape.out_width,
                             ChannelsLast ? 1 : Lanes);
    }
  }
  return ChannelsLast ? sum : segment_sum<Lanes, Lanes>(sum);
}

template <int Lanes, class T, bool ChannelsLast, int TapRows, int TapColumns>
CONVX_KERNEL(kWeightThreads, sizeof(Accumulator<T>) == 4 && TapRows * TapColumns <= 25 ? 3 : 2)
weight_grad(WeightArguments<T> arguments) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using A = Accumulator<T>;
  constexpr int kWarps = kWeightThreads / Lanes;
  constexpr int kTaps = TapRows * TapColumns;
  constexpr int kColumns = ChannelsLast ? Lanes : 1;
  CONVX_SHARED(A, partial, [kWarps * kTaps * kColumns]);

  T* result = arguments.result;
  Accumulator<T>* workspace = arguments.workspace;
  WeightShape shape = arguments.shape;
  keep_per_lane(result);
  keep_per_lane(workspace);
  keep_per_lane(shape.in_image);
  keep_per_lane(shape.in_row);
  keep_per_lane(shape.out_image);
  keep_per_lane(shape.out_row);
  keep_per_lane(shape.out_channels);
  keep_per_lane(shape.filter_width);
  const uint32_t channel_block = blockIdx.x % shape.channel_blocks;
  const uint32_t rest = blockIdx.x / shape.channel_blocks;
  const uint32_t tap_block = rest % shape.tap_blocks;
  const int64_t slice = rest / shape.tap_blocks;
  const int tap_column_begin = tap_block % shape.tap_column_blocks * TapColumns;
  const uint32_t tap_row_block = tap_block / shape.tap_column_blocks;
  const int tap_row_begin = tap_row_block % shape.tap_row_blocks * TapRows;
  const int phase = tap_row_block / shape.tap_row_blocks;
  const int tap_rows = (shape.filter_height - phase + shape.period - 1) / shape.period - tap_row_begin;
  if (tap_rows <= 0) return;  // the whole block: this phase has fewer taps

  const int warp = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
  const int channel = channel_block * kColumns + (ChannelsLast ? lane : 0);
  const bool active = channel < shape.out_channels;
  const T* const in_plane = arguments.input + (active ? channel / shape.multiplier * shape.in_plane : 0);
  const T* const out_plane = arguments.output_grad + (active ? channel * shape.out_plane : 0);

  take_turn();
  A sum[TapRows][TapColumns];
  CONVX_UNROLL
  for (int j = 0; j < TapRows; ++j) {
    CONVX_UNROLL
    for (int s = 0; s < TapColumns; ++s) sum[j][s] = 0;
  }

  // Positions of the slice, numbered (unit, column) with the column fastest, 32 bits within a slice.
  const int64_t unit_begin = shape.units * slice / shape.slices;
  const int64_t unit_end = shape.units * (slice + 1) / shape.slices;
  const int64_t image_begin = unit_begin / shape.tile_rows;
  const uint32_t first_tile = static_cast<uint32_t>(unit_begin - image_begin * shape.tile_rows);
  const uint32_t positions = active ? static_cast<uint32_t>((unit_end - unit_begin) * shape.out_width) : 0;
  const uint32_t begin = ChannelsLast ? warp : threadIdx.x, step = ChannelsLast ? kWarps : kWeightThreads;
  for (uint32_t position = begin; position < positions; position += step) {
    const uint32_t unit = first_tile + shape.divide_out_width.quotient(position);
    const int column = shape.divide_out_width.remainder(position);
    const uint32_t local_image = shape.divide_tile_rows.quotient(unit);
    const int64_t image = image_begin + local_image;
    const int tile = unit - local_image * shape.tile_rows;
    const int group = shape.divide_spacing.quotient(tile);
    const int u = group * shape.spacing * kWeightRows + tile - group * shape.spacing;

    const T* const out_column = out_plane + image * shape.out_image + int64_t(column) * shape.out_column;
    A gradient[kWeightRows];
    int rows = 0;  // how many of the four lie inside
    CONVX_UNROLL
    for (int t = 0; t < kWeightRows; ++t) {
      const int p = u + shape.spacing * t;
      gradient[t] = 0;
      if (p < shape.out_height) {
        rows = t + 1;
        gradient[t] = widen(load<T, 1>(out_column + p * shape.out_row).element[0]);
      }
    }

    const int x_begin = column * shape.stride_w - shape.padding_left + tap_column_begin * shape.dilation_w;
    bool inside[TapColumns];
    CONVX_UNROLL
    for (int s = 0; s < TapColumns; ++s) {
      const int x = x_begin + s * shape.dilation_w;
      inside[s] = x >= 0 && x < shape.in_width && tap_column_begin + s < shape.filter_width;
    }
    const T* const in_image = in_plane + image * shape.in_image;
    CONVX_UNROLL
    for (int i = 0; i < kWeightRows + TapRows - 1; ++i) {
      const int y = shape.stride_h * (u + shape.spacing * (tap_row_begin + i)) + shape.dilation_h * phase -
                    shape.padding_top;
      const bool row_inside = y >= 0 && y < shape.in_height && i < rows + tap_rows - 1;
      const T* const line = in_image + y * shape.in_row;
      A value[TapColumns];
      CONVX_UNROLL
      for (int s = 0; s < TapColumns; ++s) {
        value[s] = 0;
        if (row_inside && inside[s]) {
          value[s] =
              widen(load<T, 1>(line + int64_t(x_begin + s * shape.dilation_w) * shape.in_column).element[0]);
        }
      }
      CONVX_UNROLL
      for (int t = 0; t < kWeightRows; ++t) {
        const int j = i - t;
        if (j < 0 || j >= TapRows || t >= rows) continue;
        CONVX_UNROLL
        for (int s = 0; s < TapColumns; ++s) sum[j][s] = multiply_add(gradient[t], value[s], sum[j][s]);
      }
    }
  }

  if constexpr (ChannelsLast) {
    CONVX_UNROLL
    for (int tap = 0; tap < kTaps; ++tap) {
      partial[(warp * kTaps + tap) * Lanes + lane] = sum[tap / TapColumns][tap % TapColumns];
    }
  } else {
    const A total = warp_totals<Lanes, kTaps>(&sum[0][0], lane);
    if (lane < kTaps) partial[warp * kTaps + lane] = total;
  }
  block_barrier();
  constexpr int kWriters = ChannelsLast ? kWeightThreads : kWarps;  // threads, or warps
  CONVX_NO_UNROLL
  for (int i = ChannelsLast ? threadIdx.x : warp; i < kTaps * kColumns; i += kWriters) {
    const int tap = i / kColumns;
    const int result_channel = channel_block * kColumns + i % kColumns;
    const int j = tap / TapColumns, filter_column = tap_column_begin + tap % TapColumns;
    if (j >= tap_rows || filter_column >= shape.filter_width || result_channel >= shape.out_channels)
      continue;
    A value = 0;
    for (int w = 0; w < kWarps; ++w) value += partial[w * kTaps * kColumns + i];
    const int filter_row = phase + shape.period * (tap_row_begin + j);
    if (!is_finite(value))
      value = exact_sum<Lanes, T, ChannelsLast>(arguments, lane, result_channel, filter_row, filter_column);
    if (!ChannelsLast && lane != 0) continue;
    const int64_t taps = static_cast<int64_t>(shape.filter_height) * shape.filter_width;
    const int64_t index = result_channel * taps + filter_row * shape.filter_width + filter_column;
    if (shape.slices == 1) {
      result[index] = narrow<T>(value);
    } else {
      workspace[slice * shape.out_channels * taps + index] = value;
    }
  }
}

}  // namespace convx::depthwise::direct
