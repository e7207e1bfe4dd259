// NCHW, and the 16-bit formats in both layouts, through blocks of channels: a band of L planes is brought to
// [pixel][lane] in the cache as accumulators, where the channels_last kernels run on it, and the result is
// brought back. Lanes along columns are better only on wide planes without a stride.
#pragma once
#include "methods/depthwise/cpu/channels_weight.h"
#include "platform/cpu/transpose.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

constexpr int64_t kBlockedBandBytes = 131072;  // of transposed source: stays in a second-level cache

// count pixels of L planes, `plane` elements apart, to [pixel][lane].
template <class T>
__attribute__((noinline)) void gather_planes(const T* planes, int64_t plane, int64_t count,
                                             Accumulator<T>* pixels) {
  constexpr int L = kLanes<Accumulator<T>>;
  using V = Simd<Accumulator<T>, L>;
  if (count < L) {
    for (int64_t i = 0; i < count; ++i) {
      for (int lane = 0; lane < L; ++lane) pixels[i * L + lane] = widen(planes[lane * plane + i]);
    }
    return;
  }
  for (int64_t begin = 0; begin < count; begin += L) {
    const int64_t i = minimum(begin, count - L);  // the last step may repeat pixels
    V v[L];
    CONVX_UNROLLED
    for (int lane = 0; lane < L; ++lane) v[lane] = load<L>(planes + lane * plane + i);
    transpose<V, L>(v);
    CONVX_UNROLLED
    for (int lane = 0; lane < L; ++lane) store<L>(pixels + (i + lane) * L, v[lane]);
  }
}

// The way back, for lanes first_lane … L - 1.
template <class T>
__attribute__((noinline)) void scatter_planes(const Accumulator<T>* pixels, int64_t count, T* planes,
                                              int64_t plane, int64_t first_lane) {
  constexpr int L = kLanes<Accumulator<T>>;
  using V = Simd<Accumulator<T>, L>;
  if (count < L) {
    for (int64_t lane = first_lane; lane < L; ++lane) {
      for (int64_t i = 0; i < count; ++i) store_one(planes + lane * plane + i, pixels[i * L + lane]);
    }
    return;
  }
  for (int64_t begin = 0; begin < count; begin += L) {
    const int64_t i = minimum(begin, count - L);
    V v[L];
    CONVX_UNROLLED
    for (int lane = 0; lane < L; ++lane) v[lane] = load<L>(pixels + (i + lane) * L);
    transpose<V, L>(v);
    CONVX_UNROLLED
    for (int lane = 0; lane < L; ++lane) {
      if (lane >= first_lane) store<L>(planes + lane * plane + i, v[lane]);
    }
  }
}

// Rows of pixels of L channels of one image between memory and [pixel][lane], in either layout.
template <class T>
struct ChannelBlock {
  static constexpr int L = kLanes<Accumulator<T>>;
  bool channels_last;
  int64_t channels, width, plane;  // of the tensor

  int64_t offset(int64_t image, int64_t channel, int64_t row) const {
    return channels_last ? (image * plane + row * width) * channels + channel
                         : (image * channels + channel) * plane + row * width;
  }
  void gather(const T* tensor, int64_t image, int64_t channel, int64_t row_begin, int64_t row_end,
              Accumulator<T>* pixels) const {
    const T* first = tensor + offset(image, channel, row_begin);
    const int64_t count = (row_end - row_begin) * width;
    if (!channels_last) return gather_planes(first, plane, count, pixels);
    for (int64_t i = 0; i < count; ++i) store<L>(pixels + i * L, load<L>(first + i * channels));
  }
  void scatter(const Accumulator<T>* pixels, int64_t image, int64_t channel, int64_t row_begin,
               int64_t row_end, T* tensor, int64_t first_lane) const {
    T* first = tensor + offset(image, channel, row_begin);
    const int64_t count = (row_end - row_begin) * width;
    if (!channels_last) return scatter_planes(pixels, count, first, plane, first_lane);
    for (int64_t i = 0; i < count; ++i) store<L>(first + i * channels, load<L>(pixels + i * L));
  }
};

// A task is a band of rows of one block of channels of one image.
template <class T, int Filter, int Stride, bool Transposed>
struct BlockedRows {
  using A = Accumulator<T>;
  using Channels = ChannelRows<A, Filter, Stride, Transposed>;
  using AxisH = typename Channels::AxisH;
  using AxisW = typename Channels::AxisW;
  static constexpr int L = kLanes<A>;
  static constexpr int kTileH = Channels::kTileH, kTileW = Channels::kTileW;

  const Job& job;
  int64_t blocks = ceil_divide(job.channels, L);
  int64_t row_tiles = tile_count<kTileH, Transposed>(job.pad_top, job.target_height);
  int64_t column_tiles = tile_count<kTileW, Transposed>(job.pad_left, job.target_width);
  int64_t row_bytes = job.source_width * L * static_cast<int64_t>(sizeof(A));
  int64_t tiles_per_band =
      minimum(row_tiles, maximum(4, kBlockedBandBytes / row_bytes * (Transposed ? Stride : 1) /
                                        (kTileH * (Transposed ? 1 : Stride))));
  int64_t bands = ceil_divide(row_tiles, tiles_per_band);

  int64_t tasks() const { return job.batch * blocks * bands; }

  TileSpan rows_of(int64_t tile) const {
    return tile_span<AxisH, kTileH, Stride, Transposed>(tile, job.pad_top, job.source_height,
                                                        job.target_height);
  }

  void run(int64_t begin, int64_t end) const {
    constexpr int64_t kTaps = Filter * Filter;
    const int64_t source_rows =
        minimum(job.source_height,
                (tiles_per_band - 1) * (kTileH * (Transposed ? 1 : Stride)) / (Transposed ? Stride : 1) +
                    AxisH::kSources);
    const int64_t target_rows = minimum(job.target_height, tiles_per_band * kTileH);
    Scratch source_memory(source_rows * row_bytes);
    const int64_t target_elements = target_rows * job.target_width * L;
    // Residuals are brought to the same form, behind the results.
    const bool adds = (job.epilogue.more & (kResidualBefore | kResidualAfter)) != 0;
    Scratch target_memory((adds ? 2 : 1) * target_elements * static_cast<int64_t>(sizeof(A)));
    A* source = source_memory.as<A>();
    A* target = target_memory.as<A>();
    alignas(64) A weight[kTaps * L];
    A bias[L], scale[L];
    const ChannelBlock<T> from{job.channels_last, job.channels, job.source_width,
                               job.source_height * job.source_width};
    const ChannelBlock<T> to{job.channels_last, job.channels, job.target_width,
                             job.target_height * job.target_width};
    ChannelTile<A> tile;
    tile.weight = weight;
    tile.pixel = L;
    tile.source_row = job.source_width * L;
    tile.target_row = job.target_width * L;
    tile.block_begin = 0;
    tile.block_end = 1;
    tile.epilogue = job.epilogue;
    if (job.epilogue.bias != nullptr) tile.epilogue.bias = bias;
    if (job.epilogue.shift != nullptr) tile.epilogue.shift = bias;
    if (job.epilogue.scale != nullptr) tile.epilogue.scale = scale;
    tile.epilogue.residual_distance = target_elements * static_cast<int64_t>(sizeof(A));
    tile.ahead = tile.target_ahead = 0;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t band = task % bands, block = task / bands % blocks, image = task / bands / blocks;
      const int64_t channel = minimum(block * L, job.channels - L);
      const int64_t first_tile = band * tiles_per_band,
                    last_tile = minimum(first_tile + tiles_per_band, row_tiles) - 1;
      const TileSpan first = rows_of(first_tile), last = rows_of(last_tile);
      const int64_t source_begin = minimum(maximum(first.source, 0), job.source_height);
      const int64_t source_end =
          maximum(minimum(last.source + AxisH::kSources, job.source_height), source_begin);
      const int64_t target_begin = maximum(first.target, 0);
      const int64_t target_end = minimum(last.target + kTileH, job.target_height);
      from.gather(static_cast<const T*>(job.source), image, channel, source_begin, source_end, source);
      pack_channel_weights(static_cast<const T*>(job.weight), kTaps, job.channels, block, block + 1,
                           job.flipped, weight);
      const void* const biases = job.epilogue.scale != nullptr ? job.epilogue.shift : job.epilogue.bias;
      if (biases != nullptr) store<L>(bias, load<L>(static_cast<const T*>(biases) + channel));
      if (job.epilogue.scale != nullptr) {
        store<L>(scale, load<L>(static_cast<const T*>(job.epilogue.scale) + channel));
      }
      if (adds) {
        const T* const residuals =
            residual_of(static_cast<const T*>(job.result), job.epilogue.residual_distance);
        to.gather(residuals, image, channel, target_begin, target_end, target + target_elements);
      }
      for (int64_t row_tile = first_tile; row_tile <= last_tile; ++row_tile) {
        tile.rows = rows_of(row_tile);
        for (int64_t column = 0; column < column_tiles; ++column) {
          tile.columns = tile_span<AxisW, kTileW, Stride, Transposed>(column, job.pad_left, job.source_width,
                                                                      job.target_width);
          tile.source =
              source + (tile.rows.source - source_begin) * tile.source_row + tile.columns.source * L;
          tile.target =
              target + (tile.rows.target - target_begin) * tile.target_row + tile.columns.target * L;
          Channels::dispatch(tile);
        }
      }
      to.scatter(target, image, channel, target_begin, target_end, static_cast<T*>(job.result),
                 block * L - channel);
    }
  }
};

// A task is one slice of the batch's rows of one block of channels.
template <class T, int Filter, int Stride>
struct BlockedWeight {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;

  const Job& job;
  int64_t blocks = ceil_divide(job.channels, L);
  int64_t row_bytes = (job.source_width * Stride + job.target_width) * L * static_cast<int64_t>(sizeof(A));
  int64_t band_rows = minimum(job.target_height, maximum(8, kBlockedBandBytes / row_bytes));

  int64_t tasks() const { return job.slices * blocks; }

  void run(int64_t begin, int64_t end) const {
    constexpr int64_t kTaps = Filter * Filter;
    const int64_t source_rows = minimum(job.source_height, (band_rows - 1) * Stride + Filter);
    const int64_t source_elements = source_rows * job.source_width * L;
    Scratch memory((source_elements + band_rows * job.target_width * L) * static_cast<int64_t>(sizeof(A)));
    A* source = memory.as<A>();
    A* grad = source + source_elements;
    alignas(64) A partial[kTaps * L], band_sum[kTaps * L];
    const ChannelBlock<T> from{job.channels_last, job.channels, job.source_width,
                               job.source_height * job.source_width};
    const ChannelBlock<T> to{job.channels_last, job.channels, job.target_width,
                             job.target_height * job.target_width};
    const int64_t all_rows = job.batch * job.target_height;
    Job band = job;
    band.channels = L;
    const ChannelWeightRows<A, Filter, Stride> kernel{band};
    for (int64_t task = begin; task < end; ++task) {
      const int64_t slice = task / blocks, block = task % blocks;
      const int64_t channel = minimum(block * L, job.channels - L);
      zero_over(partial, kTaps * L);
      const int64_t slice_end = all_rows * (slice + 1) / job.slices;
      for (int64_t row = all_rows * slice / job.slices; row < slice_end;) {
        const int64_t image = row / job.target_height;
        const int64_t row_begin = row % job.target_height;
        const int64_t row_end =
            minimum(minimum(row_begin + band_rows, job.target_height), row_begin + slice_end - row);
        const int64_t first = row_begin * Stride - job.pad_top;
        const int64_t source_begin = minimum(maximum(first, 0), job.source_height);
        const int64_t source_end =
            maximum(minimum((row_end - 1) * Stride - job.pad_top + Filter, job.source_height), source_begin);
        from.gather(static_cast<const T*>(job.source), image, channel, source_begin, source_end, source);
        to.gather(static_cast<const T*>(job.target_grad), image, channel, row_begin, row_end, grad);
        band.pad_top = source_begin - first;
        band.source_height = source_end - source_begin;
        // A third level of sums, since a batch has hundreds of the second.
        zero_over(band_sum, kTaps * L);
        kernel.add(ChannelWeightPiece<A>{source, grad, 0, row_end - row_begin}, band_sum);
        for (int64_t tap = 0; tap < kTaps; ++tap) add_to<L>(partial + tap * L, load<L>(band_sum + tap * L));
        row += row_end - row_begin;
      }
      for (int lane = 0; lane < L; ++lane) {
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          const int64_t index = (channel + lane) * kTaps + tap;
          if (job.slices == 1) {
            store_one(static_cast<T*>(job.result) + index, partial[tap * L + lane]);
          } else {
            static_cast<A*>(job.workspace)[slice * job.channels * kTaps + index] = partial[tap * L + lane];
          }
        }
      }
    }
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
