// weight_grad of large filters: result[r][c] = sum over rows y of sum_k band_y[c][k] input[y + r][x0 + k],
// where band_y[c][k] = output_grad[y][x0 + k - c]. A row of the gradient is a band here, and taps are what
// results are elsewhere. A block takes a channel, or eight that are last, and walks through a slice of the
// regions of all images.
#pragma once
#include "methods/depthwise/banded/products.cuh"
#include "methods/depthwise/exact_products.cuh"

namespace convx::depthwise::banded {

struct WeightArguments {
  Planes input, grad;
  int top, left;
  int filter_height, filter_width;
  int tile_rows, tile_columns, steps;  // of a region
  int staged_rows, plane_elements, pitch, group, bands_at;
  FastDivide groups, regions, region_columns, staged_columns, grad_columns;
  int64_t units, slices;  // regions of all images are split evenly over the slices

  CONVX_DEVICE void keep_per_lane() {
    input.keep_per_lane();
    grad.keep_per_lane();
    for (int* each : {&top, &left, &filter_height, &filter_width, &tile_rows, &tile_columns, &steps,
                      &staged_rows, &plane_elements, &pitch, &group}) {
      convx::keep_per_lane(*each);
    }
    for (FastDivide* each : {&regions, &region_columns, &staged_columns, &grad_columns}) {
      banded::keep_per_lane(*each);
    }
    convx::keep_per_lane(units);
    convx::keep_per_lane(slices);
  }
};

// The first of a region's gradients.
struct Spot {
  int64_t image;
  int y, x;
};
CONVX_DEVICE Spot spot_of(const WeightArguments& a, int64_t unit) {
  const int64_t image = unit / a.regions.divisor;
  const uint32_t region = static_cast<uint32_t>(unit - image * a.regions.divisor);
  return {image, static_cast<int>(a.region_columns.quotient(region)) * a.tile_rows * kSide,
          static_cast<int>(a.region_columns.remainder(region)) * a.tile_columns * kSide};
}

// Of a slice's products of one tap.
template <class T, bool ChannelsLast>
CONVX_DEVICE float exact_tap(const WeightArguments& a, int64_t slice, int channel, int row, int column) {
  const int64_t in_plane = ChannelsLast ? 1 : int64_t{a.input.height} * a.input.width;
  const int64_t out_plane = ChannelsLast ? 1 : int64_t{a.grad.height} * a.grad.width;
  const int step = ChannelsLast ? a.input.channels : 1;
  const int height = a.tile_rows * kSide, width = a.tile_columns * kSide;
  const int64_t last = a.units * (slice + 1) / a.slices;
  float sum = 0;
  CONVX_NO_UNROLL
  for (int64_t unit = a.units * slice / a.slices; unit < last; ++unit) {
    const auto [image, y, x] = spot_of(a, unit);
    const ExactProducts<T> products{
        reinterpret_cast<const T*>(a.input.data) + image * a.input.image + channel * in_plane,
        reinterpret_cast<const T*>(a.grad.data) + image * a.grad.image + channel * out_plane,
        a.input.height,
        a.input.width,
        a.grad.height,
        a.grad.width,
        int64_t{a.input.width} * step,
        int64_t{a.grad.width} * step,
        step,
        step,
        1,
        1,
        row - a.top,
        column - a.left};
    CONVX_NO_UNROLL
    for (int line = y; line < y + height; ++line) sum += products.of_row(line, x, x + width, 1);
  }
  return sum;
}

template <int Lanes, int Sides, bool ChannelsLast, class T>
CONVX_KERNEL((ChannelsLast ? kChannels : kPlaneWarps) * Lanes, 1)
weight_kernel(WeightArguments a, T* result, float* workspace) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  using Rows = OwnRows<Lanes, Sides>;
  constexpr int kWarps = ChannelsLast ? kChannels : kPlaneWarps, kThreads = kWarps * Lanes;
  constexpr int kMargin = 2 * kSide, kTaps = Sides * kSide, kRows = Rows::kCount;
  a.keep_per_lane();
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const int group = static_cast<int>(a.groups.remainder(blockIdx.x));
  const int64_t slice = a.groups.quotient(blockIdx.x);
  const int first_channel = group * (ChannelsLast ? kChannels : 1);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / Lanes;
  const int band_row = (a.steps + 2) * kSide, band_elements = a.tile_rows * kSide * 2 * band_row;
  const int64_t first = a.units * slice / a.slices, last = a.units * (slice + 1) / a.slices;

  // What is around the gradient's rows stays zero.
  fill_with_zeros(bands, (ChannelsLast ? kChannels : 1) * band_elements);
  take_turn();
  const Lane<Lanes> own;
  // Rows of the gradient: a channel's all, or a warp's part of them, one after another.
  const int rows = a.tile_rows * kSide / (ChannelsLast ? 1 : kWarps),
            own_rows = ChannelsLast ? 0 : warp * rows;
  const int own_plane = ChannelsLast ? warp : 0;
  const RowPlaces<kRows> places{a.pitch, a.group};
  const uint16_t* const own_input =
      staged + own_plane * a.plane_elements + places(own_rows) + own.offset_of_rows(a.group);
  const uint16_t* const own_bands = bands + own_plane * band_elements + own_rows * 2 * band_row +
                                    own.template offset_of_band<kMargin>(band_row);
  // Rows of taps by as many columns.
  Sums<Lanes, kRows, Sides> sums;
  const Staged<kRows> to_planes{staged, a.plane_elements, places};
  const Banded<kMargin> to_bands{bands, band_elements, band_row};
  CONVX_NO_UNROLL
  for (int64_t unit = first; unit < last; ++unit) {
    const auto [image, y, x] = spot_of(a, unit);
    block_barrier();  // the region before is used up, or the bands are zero
    if constexpr (ChannelsLast) {
      read_octets(thread, kThreads, a.input, image, first_channel, y - a.top, x - a.left, a.staged_rows,
                  a.staged_columns, to_planes);
      read_octets(thread, kThreads, a.grad, image, first_channel, y, x, a.tile_rows * kSide, a.grad_columns,
                  to_bands);
    } else {
      read_plane(thread, kThreads, a.input, image, group, y - a.top, x - a.left, a.staged_rows,
                 a.staged_columns, to_planes);
      read_plane(thread, kThreads, a.grad, image, group, y, x, a.tile_rows * kSide, a.grad_columns, to_bands);
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int depth = 0; depth < a.steps * kSide; depth += kSide) {
      multiply<T, Lanes, 1, Sides>(sums, {own_input + depth}, places, own_bands + depth, 2 * band_row, rows);
    }
  }

  // Sums come together as [warp][tap row][tap column]: each is a channel's, or those of rows of one.
  block_barrier();
  float* const together = reinterpret_cast<float*>(shared);
  sums.for_each([&](int i, int group, int column, float sum) {
    together[(warp * kTaps + Rows::row(i, group)) * kTaps + column] = sum;
  });
  block_barrier();
  const int taps = a.filter_height * a.filter_width;
  CONVX_NO_UNROLL
  for (int i = thread; i < (ChannelsLast ? kWarps : 1) * kTaps * kTaps; i += kThreads) {
    const int channel = first_channel + i / (kTaps * kTaps);
    const int row = i / kTaps % kTaps, column = i % kTaps;
    if (row >= a.filter_height || column >= a.filter_width || channel >= a.input.channels) continue;
    float sum = together[i];
    if constexpr (!ChannelsLast) {
      CONVX_UNROLL
      for (int other = 1; other < kWarps; ++other) sum += together[other * kTaps * kTaps + i];
    }
    if (!is_finite(sum)) sum = exact_tap<T, ChannelsLast>(a, slice, channel, row, column);
    const int64_t index = static_cast<int64_t>(channel) * taps + row * a.filter_width + column;
    if (a.slices == 1) {
      result[index] = narrow<T>(sum);
    } else {
      workspace[slice * a.input.channels * taps + index] = sum;
    }
  }
}

}  // namespace convx::depthwise::banded
