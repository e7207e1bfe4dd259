// weight_grad of large filters: result[r][c] = sum over rows y of sum_k input[y + r][x0 + k] band_y[k][c],
// where band_y[k][c] = output_grad[y][x0 + k - c]. A row of the gradient is a band here, and taps are what
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
  int staged_rows, pitch, bands_at;
  FastDivide groups, regions, region_columns, staged_columns, grad_columns;
  int64_t units, slices;  // regions of all images are split evenly over the slices

  CONVX_DEVICE void keep_per_lane() {
    input.keep_per_lane();
    grad.keep_per_lane();
    for (int* each : {&top, &left, &filter_height, &filter_width, &tile_rows, &tile_columns, &steps,
                      &staged_rows, &pitch}) {
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

// Adds the products of gradient rows first, first + step, …: input and bands are this lane's parts.
template <class T, int Lanes, int Sides, int Parts>
CONVX_DEVICE void add_rows(Sums<Lanes, Sides, Parts>& sums, const WeightArguments& a, const uint16_t* input,
                           const uint16_t* bands, int first, int step) {
  using F = Fragment<Lanes>;
  const int band_row = 2 * (a.steps + 2) * kSide;
  CONVX_NO_UNROLL
  for (int y = first; y < a.tile_rows * kSide; y += step) {
    const uint16_t* source = input + y * a.pitch;
    const uint16_t* band = bands + y * band_row;
    CONVX_NO_UNROLL
    for (int depth = 0; depth < a.steps; ++depth, source += kSide, band += kSide) {
      uint32_t b[Parts][2];
      CONVX_UNROLL
      for (int part = 0; part < Parts; ++part) {
        CONVX_UNROLL
        for (int j = 0; j < 2; ++j) b[part][j] = word_at(band - part * F::kColumns + 2 * j);
      }
      CONVX_UNROLL
      for (int side = 0; side < Sides; ++side) {
        uint32_t words[F::kWordsA];
        read_a<Lanes>(words, source + side * kSide * a.pitch, a.pitch);
        CONVX_UNROLL
        for (int part = 0; part < Parts; ++part) {
          multiply_fragments<Lanes, T>(sums.at[side][part], words, b[part][0], b[part][1]);
        }
      }
    }
  }
}

template <int Lanes, int Sides, bool ChannelsLast, class T>
CONVX_KERNEL((ChannelsLast ? kChannels : kPlaneWarps) * Lanes, 1)
weight_kernel(WeightArguments a, T* result, float* workspace) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  constexpr int kWarps = ChannelsLast ? kChannels : kPlaneWarps, kThreads = kWarps * Lanes;
  constexpr int kMargin = 2 * kSide, kTaps = Sides * kSide;
  a.keep_per_lane();
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const int group = static_cast<int>(a.groups.remainder(blockIdx.x));
  const int64_t slice = a.groups.quotient(blockIdx.x);
  const int first_channel = group * (ChannelsLast ? kChannels : 1);
  const int warp = static_cast<int>(threadIdx.x) / Lanes;
  const int plane_elements = a.staged_rows * a.pitch;
  const int band_row = (a.steps + 2) * kSide, band_elements = a.tile_rows * kSide * 2 * band_row;
  const int64_t first = a.units * slice / a.slices, last = a.units * (slice + 1) / a.slices;

  // What is around the gradient's rows stays zero.
  const int words = (ChannelsLast ? kChannels : 1) * band_elements / 2;
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) {
    reinterpret_cast<uint32_t*>(bands)[i] = 0;
  }
  take_turn();
  const Lane<Lanes> own;
  const int own_plane = ChannelsLast ? warp : 0;
  const uint16_t* const own_input = staged + own_plane * plane_elements + own.offset_of_a(a.pitch);
  const uint16_t* const own_bands =
      bands + own_plane * band_elements + own.template offset_of_b<kMargin>(band_row);
  // Rows of taps by as many columns.
  Sums<Lanes, Sides, Sides * Lane<Lanes>::kHalves> sums;
  const Staged to_planes{staged, plane_elements, a.pitch};
  const Banded<kMargin> to_bands{bands, band_elements, band_row};
  CONVX_NO_UNROLL
  for (int64_t unit = first; unit < last; ++unit) {
    const auto [image, y, x] = spot_of(a, unit);
    block_barrier();  // the region before is used up, or the bands are zero
    if constexpr (ChannelsLast) {
      read_octets<kThreads>(a.input, image, first_channel, y - a.top, x - a.left, a.staged_rows,
                            a.staged_columns, to_planes);
      read_octets<kThreads>(a.grad, image, first_channel, y, x, a.tile_rows * kSide, a.grad_columns,
                            to_bands);
    } else {
      read_plane<Lanes, kWarps>(a.input, image, group, y - a.top, x - a.left, a.staged_rows,
                                static_cast<int>(a.staged_columns.divisor), to_planes);
      read_plane<Lanes, kWarps>(a.grad, image, group, y, x, a.tile_rows * kSide,
                                static_cast<int>(a.grad_columns.divisor), to_bands);
    }
    block_barrier();
    add_rows<T>(sums, a, own_input, own_bands, ChannelsLast ? 0 : warp, ChannelsLast ? 1 : kWarps);
  }

  // Sums come together as [warp][tap row][tap column]: each is a channel's, or those of rows of one.
  block_barrier();
  float* const together = reinterpret_cast<float*>(shared);
  sums.for_each([&](int side, int row, int column, float sum) {
    together[(warp * kTaps + side * kSide + row) * kTaps + column] = sum;
  });
  block_barrier();
  const int taps = a.filter_height * a.filter_width;
  CONVX_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < (ChannelsLast ? kWarps : 1) * kTaps * kTaps;
       i += kThreads) {
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
