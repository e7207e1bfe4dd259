// Forward, and input_grad as a forward convolution with the filter turned by half, of large filters: a block
// brings a region of a plane, of one channel's planes of several images, or of eight channels that are last
// to shared memory, with the filters' bands, and multiplies it row by row of the filter.
#pragma once
#include "methods/depthwise/banded/products.cuh"
#include "methods/depthwise/exact_products.cuh"
#include "methods/epilogue.cuh"

namespace convx::depthwise::banded {

struct Arguments {
  Planes source, filters;
  int result_height, result_width;
  int64_t result_image;
  int top, left;  // what of the source lies before the first result's
  bool turned;
  int batch, planes;
  int region_height, staged_rows, plane_elements, pitch, group, bands_at;
  FastDivide regions, region_columns, groups, units, unit_row, staged_columns, region_width, filter_width;

  CONVX_DEVICE void keep_per_lane() {
    source.keep_per_lane();
    filters.keep_per_lane();
    convx::keep_per_lane(result_image);
    for (int* each : {&result_height, &result_width, &top, &left}) convx::keep_per_lane(*each);
    for (FastDivide* each : {&units, &unit_row, &staged_columns, &region_width, &filter_width}) {
      banded::keep_per_lane(*each);
    }
  }
};

// The first of a block's results.
struct Region {
  int64_t image;
  int group, y, x;
};

template <bool ChannelsLast>
CONVX_DEVICE Region region_of(const Arguments& a) {
  // Blocks of neighbouring channels read the same cache lines where channels are last.
  const FastDivide& inner = ChannelsLast ? a.groups : a.regions;
  const FastDivide& outer = ChannelsLast ? a.regions : a.groups;
  const uint32_t rest = inner.quotient(blockIdx.x);
  const int first = static_cast<int>(inner.remainder(blockIdx.x));
  const int second = static_cast<int>(outer.remainder(rest));
  const int region = ChannelsLast ? second : first;
  const int row = static_cast<int>(a.region_columns.quotient(region));
  const int column = static_cast<int>(a.region_columns.remainder(region));
  return {static_cast<int64_t>(outer.quotient(rest)) * (ChannelsLast ? 1 : a.planes),
          ChannelsLast ? first : second, row * a.region_height,
          column * static_cast<int>(a.region_width.divisor)};
}

// A result's sum by what is in memory: zeros of a band times what is not finite are no numbers.
template <class T, bool ChannelsLast>
CONVX_DEVICE float exact_sum(const Arguments& a, int64_t image, int channel, int y, int x) {
  const int64_t step = ChannelsLast ? a.source.channels : 1;
  const T* const plane =
      reinterpret_cast<const T*>(a.source.data) + image * a.source.image +
      static_cast<int64_t>(channel) * (ChannelsLast ? 1 : int64_t{a.source.height} * a.source.width);
  const int width = a.filters.width, taps = a.filters.height * width;
  const T* const filter = reinterpret_cast<const T*>(a.filters.data) + static_cast<int64_t>(channel) * taps;
  float sum = 0;
  CONVX_NO_UNROLL
  for (int tap = 0; tap < taps; ++tap) {
    const int row = static_cast<int>(a.filter_width.quotient(tap)), column = tap - row * width;
    if (!is_inside(a.source, y - a.top + row, x - a.left + column)) continue;
    const int64_t pixel = static_cast<int64_t>(y - a.top + row) * a.source.width + x - a.left + column;
    const T value = load<T, 1>(plane + pixel * step).element[0];
    const T weight = load<T, 1>(filter + (a.turned ? taps - 1 - tap : tap)).element[0];
    sum = multiply_add(float(widen(value)), float(widen(weight)), sum);
  }
  return sum;
}

// A channel's taps, by so many threads, to a band of zeros.
template <int Steps>
CONVX_DEVICE void read_taps(const Arguments& a, uint16_t* band, int channel, int first, int step) {
  const Banded<kSide> to_band{band, 0, (Steps + 1) * kSide};
  const int bottom = a.filters.height - 1, right = a.filters.width - 1;
  read_plane(first, step, a.filters, 0, channel, 0, 0, a.filters.height, a.filter_width,
             [&](int row, int column, uint16_t value) {
               to_band(a.turned ? bottom - row : row, a.turned ? right - column : column, value);
             });
}

template <int Lanes, int Steps, int Stack, class T>
CONVX_KERNEL(kPlaneWarps* Lanes, 1)
planes_kernel(Arguments a, const T* bias, T* result, Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  using Rows = OwnRows<Lanes, Stack>;
  constexpr int kThreads = kPlaneWarps * Lanes, kElements = (Steps + 1) * kSide;
  a.keep_per_lane();
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const Region region = region_of<false>(a);
  const int channel = region.group, thread = static_cast<int>(threadIdx.x);
  const int64_t images = a.batch - region.image;
  const int planes = images < a.planes ? static_cast<int>(images) : a.planes;
  fill_with_zeros(bands, a.filters.height * 2 * kElements);
  take_turn();
  for (int plane = 0; plane < planes; ++plane) {
    const Staged<Rows::kCount> to{staged + plane * a.plane_elements, 0, {a.pitch, a.group}};
    read_plane(thread, kThreads, a.source, region.image + plane, channel, region.y - a.top, region.x - a.left,
               a.staged_rows, a.staged_columns, to);
  }
  block_barrier();  // the bands are zero
  read_taps<Steps>(a, bands, channel, thread, kThreads);
  block_barrier();

  const Lane<Lanes> own;
  const int units = planes * static_cast<int>(a.units.divisor);
  const uint16_t* const band = bands + own.template offset_of_band<kSide>(kElements);
  for (int first = thread / Lanes * Stack; first < units; first += kPlaneWarps * Stack) {
    const uint16_t* unit[Stack];
    int64_t image[Stack];
    int y[Stack], x[Stack];
    CONVX_UNROLL
    for (int u = 0; u < Stack; ++u) {
      const uint32_t index = min(first + u, units - 1), plane = a.units.quotient(index);
      const uint32_t of_plane = index - plane * a.units.divisor, row = a.unit_row.quotient(of_plane);
      const int column = static_cast<int>(of_plane - row * a.unit_row.divisor) * kSide;
      unit[u] = staged + plane * a.plane_elements + static_cast<int>(row) * Rows::kGroups * a.group + column +
                own.offset_of_rows(a.group);
      image[u] = region.image + plane;
      y[u] = region.y + static_cast<int>(row) * Stack * kSide;
      x[u] = first + u < units ? region.x + column : a.result_width;  // of a unit that is another's: nothing
    }
    Sums<Lanes, Stack * Rows::kCount, 1> sums;
    multiply<T, Lanes, Steps, Stack>(sums, unit, {a.pitch, a.group}, band, 2 * kElements, a.filters.height);
    const float offset = bias_of(bias, channel);
    sums.for_each([&](int i, int group, int column, float sum) {
      const int u = i / Rows::kCount, to_y = y[u] + Rows::row(i % Rows::kCount, group), to_x = x[u] + column;
      if (to_y >= a.result_height || to_x >= a.result_width) return;
      if (!is_finite(sum)) sum = exact_sum<T, false>(a, image[u], channel, to_y, to_x);
      T* const place = result + image[u] * a.result_image +
                       (static_cast<int64_t>(channel) * a.result_height + to_y) * a.result_width + to_x;
      *place = finished(sum + offset, finishing, channel, place);
    });
  }
}

template <int Lanes, int Steps, int Stack, class T>
CONVX_KERNEL(kChannels* Lanes, 1)
octets_kernel(Arguments a, const T* bias, T* result, Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  using Rows = OwnRows<Lanes, Stack>;
  constexpr int kElements = (Steps + 1) * kSide, kThreads = kChannels * Lanes;
  a.keep_per_lane();
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const Region region = region_of<true>(a);
  const int first_channel = region.group * kChannels, thread = static_cast<int>(threadIdx.x);
  const int warp = thread / Lanes;
  uint16_t* const own_band = bands + warp * a.filters.height * 2 * kElements;
  fill_with_zeros(bands, kChannels * a.filters.height * 2 * kElements);
  take_turn();
  read_octets(thread, kThreads, a.source, region.image, first_channel, region.y - a.top, region.x - a.left,
              a.staged_rows, a.staged_columns,
              Staged<Rows::kCount>{staged, a.plane_elements, {a.pitch, a.group}});
  block_barrier();  // the bands are zero
  if (first_channel + warp < a.source.channels) {
    read_taps<Steps>(a, own_band, first_channel + warp, thread % Lanes, Lanes);
  }
  block_barrier();

  // A block has no more units than a warp has sums for.
  const Lane<Lanes> own;
  const int units = static_cast<int>(a.units.divisor), width = static_cast<int>(a.region_width.divisor);
  const uint16_t* unit[Stack];
  int place[Stack];
  CONVX_UNROLL
  for (int u = 0; u < Stack; ++u) {
    const int index = min(u, units - 1), row = static_cast<int>(a.unit_row.quotient(index));
    const int column = static_cast<int>(a.unit_row.remainder(index)) * kSide;
    unit[u] = staged + warp * a.plane_elements + row * Rows::kGroups * a.group + column +
              own.offset_of_rows(a.group);
    place[u] = row * Stack * kSide * (width + 1) + column;
  }
  Sums<Lanes, Stack * Rows::kCount, 1> sums;
  multiply<T, Lanes, Steps, Stack>(sums, unit, {a.pitch, a.group},
                                   own_band + own.template offset_of_band<kSide>(kElements), 2 * kElements,
                                   a.filters.height);
  block_barrier();
  float* const together = reinterpret_cast<float*>(shared);  // [pixel][channel], a pixel more in each row
  sums.for_each([&](int i, int group, int column, float sum) {
    const int u = i / Rows::kCount, pixel = Rows::row(i % Rows::kCount, group) * (width + 1) + column;
    if (u < units) together[(place[u] + pixel) * kChannels + warp] = sum;
  });
  block_barrier();

  const int pixels = a.region_height * width, channels = a.source.channels;
  CONVX_NO_UNROLL
  for (int pixel = thread; pixel < pixels; pixel += kThreads) {
    const int row = static_cast<int>(a.region_width.quotient(pixel)), column = pixel - row * width;
    const int y = region.y + row, x = region.x + column;
    if (y >= a.result_height || x >= a.result_width) continue;
    const float* const from = together + (row * (width + 1) + column) * kChannels;
    float all[kChannels];
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) all[c] = from[c];
    CONVX_NO_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      if (is_finite(from[c]) || first_channel + c >= channels) continue;
      const float exact = exact_sum<T, true>(a, region.image, first_channel + c, y, x);
      CONVX_UNROLL
      for (int other = 0; other < kChannels; ++other) all[other] = other == c ? exact : all[other];
    }
    T* const to = result + region.image * a.result_image +
                  (static_cast<int64_t>(y) * a.result_width + x) * channels + first_channel;
    if (a.source.has_octets) {
      CONVX_UNROLL
      for (int c = 0; c < kChannels; ++c) all[c] += bias_of(bias, first_channel + c);
      finish(
          all, finishing, [&](int c) { return first_channel + c; },
          [&](T(&residuals)[kChannels]) { read_residuals(finishing, to, residuals); });
      Vector<T, kChannels> values;
      CONVX_UNROLL
      for (int c = 0; c < kChannels; ++c) values.element[c] = narrow<T>(all[c]);
      store<T, kChannels>(to, values);
      continue;
    }
    CONVX_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      const int channel = first_channel + c;
      if (channel < channels) to[c] = finished(all[c] + bias_of(bias, channel), finishing, channel, to + c);
    }
  }
}

}  // namespace convx::depthwise::banded
