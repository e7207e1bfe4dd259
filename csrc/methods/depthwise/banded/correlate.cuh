// Forward, and input_grad as a forward convolution with the filter turned by half, of large filters: a block
// brings a region of a plane, of one channel's planes of several images, or of eight channels that are last
// to shared memory, with the filters' bands, and multiplies it row by row of the filter.
#pragma once
#include "methods/depthwise/banded/products.cuh"
#include "methods/depthwise/exact_products.cuh"
#include "methods/epilogue.cuh"

namespace convx::depthwise::banded {

struct Arguments {
  Planes source;
  const uint16_t* weight;
  int result_height, result_width;
  int64_t result_image;
  int top, left;  // what of the source lies before the first result's
  int filter_height, filter_width;
  bool turned;
  int batch, planes;
  int tile_rows, tile_columns;
  int staged_rows, pitch, bands_at;
  FastDivide regions, region_columns, groups, tiles, tile_row, staged_columns, region_width;

  CONVX_DEVICE void keep_per_lane() {
    source.keep_per_lane();
    convx::keep_per_lane(result_image);
    for (int* each : {&result_height, &result_width, &top, &left, &filter_height, &filter_width}) {
      convx::keep_per_lane(*each);
    }
    for (FastDivide* each : {&tiles, &tile_row, &staged_columns, &region_width}) {
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
          ChannelsLast ? first : second, row * a.tile_rows * kSide, column * a.tile_columns * kSide};
}

// A result's sum by what is in memory: zeros of a band times what is not finite are no numbers.
template <class T, bool ChannelsLast>
CONVX_DEVICE float exact_sum(const Arguments& a, int64_t image, int channel, int y, int x) {
  const int64_t step = ChannelsLast ? a.source.channels : 1;
  const T* const plane =
      reinterpret_cast<const T*>(a.source.data) + image * a.source.image +
      static_cast<int64_t>(channel) * (ChannelsLast ? 1 : int64_t{a.source.height} * a.source.width);
  const T* const filter =
      reinterpret_cast<const T*>(a.weight) + static_cast<int64_t>(channel) * a.filter_height * a.filter_width;
  const int taps = a.filter_height * a.filter_width;
  float sum = 0;
  CONVX_NO_UNROLL
  for (int tap = 0; tap < taps; ++tap) {
    const int row = tap / a.filter_width, column = tap - row * a.filter_width;
    if (!is_inside(a.source, y - a.top + row, x - a.left + column)) continue;
    const int64_t pixel = static_cast<int64_t>(y - a.top + row) * a.source.width + x - a.left + column;
    const T value = load<T, 1>(plane + pixel * step).element[0];
    const T weight = load<T, 1>(filter + (a.turned ? taps - 1 - tap : tap)).element[0];
    sum = multiply_add(float(widen(value)), float(widen(weight)), sum);
  }
  return sum;
}

template <int Steps>
CONVX_DEVICE void stage_band(const Arguments& a, uint16_t* band, int channel, int begin, int step) {
  constexpr int kElements = (Steps + 1) * kSide;
  const int taps = a.filter_height * a.filter_width;
  const uint16_t* const filter = a.weight + static_cast<int64_t>(channel) * taps;
  // Every place is written once: by its tap, or as one that has none.
  for (int i = begin; i < a.filter_height * kElements * 2; i += step) {
    const int row = i / (2 * kElements), place = i - row * 2 * kElements;
    const int copy = place / kElements, tap = place - copy * kElements - kSide + copy;
    uint16_t value = 0;
    if (tap >= 0 && tap < a.filter_width && channel < a.source.channels) {
      const int index = row * a.filter_width + tap;
      value = load<uint16_t, 1>(filter + (a.turned ? taps - 1 - index : index)).element[0];
    }
    band[i] = value;
  }
}

// Of tiles that one warp multiplies at once, so that a band's words serve them all. tile: each one's source
// in shared memory, and band, this lane's parts.
template <class T, int Lanes, int Steps, int Tiles>
CONVX_DEVICE void multiply(Sums<Lanes, Tiles, Lane<Lanes>::kHalves>& sums, const Arguments& a,
                           const uint16_t* const (&tile)[Tiles], const uint16_t* band) {
  using F = Fragment<Lanes>;
  constexpr int kElements = (Steps + 1) * kSide, kHalves = Lane<Lanes>::kHalves;
  int offset = 0;
  CONVX_NO_UNROLL
  for (int row = 0; row < a.filter_height; ++row, offset += a.pitch, band += 2 * kElements) {
    uint32_t b[Steps][kHalves][2];
    CONVX_UNROLL
    for (int step = 0; step < Steps; ++step) {
      CONVX_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        CONVX_UNROLL
        for (int j = 0; j < 2; ++j) {
          b[step][half][j] = word_at(band + step * kSide - half * F::kColumns + 2 * j);
        }
      }
    }
    CONVX_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      CONVX_UNROLL
      for (int step = 0; step < Steps; ++step) {
        uint32_t words[F::kWordsA];
        read_a<Lanes>(words, tile[t] + offset + step * kSide, a.pitch);
        CONVX_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          multiply_fragments<Lanes, T>(sums.at[t][half], words, b[step][half][0], b[step][half][1]);
        }
      }
    }
  }
}

template <int Lanes, int Steps, int Tiles, class T>
CONVX_KERNEL(kPlaneWarps* Lanes, 1)
planes_kernel(Arguments a, const T* bias, T* result, Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  constexpr int kWarps = kPlaneWarps, kElements = (Steps + 1) * kSide;
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const Region region = region_of<false>(a);
  const int channel = region.group, plane_elements = a.staged_rows * a.pitch;
  const int64_t images = a.batch - region.image;
  const int planes = images < a.planes ? static_cast<int>(images) : a.planes;
  take_turn();
  stage_band<Steps>(a, bands, channel, static_cast<int>(threadIdx.x), kWarps * Lanes);
  for (int plane = 0; plane < planes; ++plane) {
    read_plane<Lanes, kWarps>(a.source, region.image + plane, channel, region.y - a.top, region.x - a.left,
                              a.staged_rows, static_cast<int>(a.staged_columns.divisor),
                              Staged{staged + plane * plane_elements, plane_elements, a.pitch});
  }
  block_barrier();

  const Lane<Lanes> own;
  const int warp = static_cast<int>(threadIdx.x) / Lanes;
  const int tiles = planes * static_cast<int>(a.tiles.divisor);
  const uint16_t* const band = bands + own.template offset_of_b<kSide>(kElements);
  for (int first = warp * Tiles; first < tiles; first += kWarps * Tiles) {
    const uint16_t* tile[Tiles];
    int64_t image[Tiles];
    int y[Tiles], x[Tiles];
    CONVX_UNROLL
    for (int t = 0; t < Tiles; ++t) {
      const uint32_t index = min(first + t, tiles - 1), plane = a.tiles.quotient(index);
      const uint32_t of_plane = index - plane * a.tiles.divisor, row = a.tile_row.quotient(of_plane);
      const int tile_y = static_cast<int>(row) * kSide;
      const int tile_x = static_cast<int>(of_plane - row * a.tile_row.divisor) * kSide;
      tile[t] = staged + plane * plane_elements + tile_y * a.pitch + tile_x + own.offset_of_a(a.pitch);
      image[t] = region.image + plane;
      y[t] = region.y + tile_y;
      x[t] = first + t < tiles ? region.x + tile_x : a.result_width;  // of a tile that is another's: nothing
    }
    Sums<Lanes, Tiles, Lane<Lanes>::kHalves> sums;
    multiply<T, Lanes, Steps>(sums, a, tile, band);
    const float offset = bias_of(bias, channel);
    sums.for_each([&](int t, int row, int column, float sum) {
      if (y[t] + row >= a.result_height || x[t] + column >= a.result_width) return;
      if (!is_finite(sum)) sum = exact_sum<T, false>(a, image[t], channel, y[t] + row, x[t] + column);
      T* const place = result + image[t] * a.result_image +
                       (static_cast<int64_t>(channel) * a.result_height + y[t] + row) * a.result_width +
                       x[t] + column;
      *place = finished(sum + offset, finishing, channel, place);
    });
  }
}

template <int Lanes, int Steps, int Tiles, class T>
CONVX_KERNEL(kChannels* Lanes, 1)
octets_kernel(Arguments a, const T* bias, T* result, Finishing<T> finishing) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  CONVX_SKIP_WITHOUT_MATRIX_UNITS();
  constexpr int kElements = (Steps + 1) * kSide, kThreads = kChannels * Lanes;
  a.keep_per_lane();
  CONVX_DYNAMIC_SHARED(shared);
  uint16_t* const staged = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const bands = reinterpret_cast<uint16_t*>(shared + a.bands_at);
  const Region region = region_of<true>(a);
  const int first_channel = region.group * kChannels, plane_elements = a.staged_rows * a.pitch;
  const int warp = static_cast<int>(threadIdx.x) / Lanes;
  uint16_t* const own_band = bands + warp * a.filter_height * 2 * kElements;
  take_turn();
  stage_band<Steps>(a, own_band, first_channel + warp, static_cast<int>(threadIdx.x) % Lanes, Lanes);
  read_octets<kThreads>(a.source, region.image, first_channel, region.y - a.top, region.x - a.left,
                        a.staged_rows, a.staged_columns, Staged{staged, plane_elements, a.pitch});
  block_barrier();

  // A block has no more tiles than a warp has sums for.
  const Lane<Lanes> own;
  const int tiles = static_cast<int>(a.tiles.divisor), width = static_cast<int>(a.region_width.divisor);
  const uint16_t* tile[Tiles];
  int place[Tiles];
  CONVX_UNROLL
  for (int t = 0; t < Tiles; ++t) {
    const int index = min(t, tiles - 1), row = static_cast<int>(a.tile_row.quotient(index)) * kSide;
    const int column = static_cast<int>(a.tile_row.remainder(index)) * kSide;
    tile[t] = staged + warp * plane_elements + row * a.pitch + column + own.offset_of_a(a.pitch);
    place[t] = row * (width + 1) + column;
  }
  Sums<Lanes, Tiles, Lane<Lanes>::kHalves> sums;
  multiply<T, Lanes, Steps>(sums, a, tile, own_band + own.template offset_of_b<kSide>(kElements));
  block_barrier();
  float* const together = reinterpret_cast<float*>(shared);  // [pixel][channel], a pixel more in each row
  sums.for_each([&](int t, int row, int column, float sum) {
    if (t < tiles) together[(place[t] + row * (width + 1) + column) * kChannels + warp] = sum;
  });
  block_barrier();

  const int pixels = a.tile_rows * kSide * width, channels = a.source.channels;
  CONVX_NO_UNROLL
  for (int pixel = static_cast<int>(threadIdx.x); pixel < pixels; pixel += kThreads) {
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
