// HNTMP with distributed channels: each warp goes through its own source channels with a ring of stages of
// its own, so that no barrier of the block stands in the loop, and its lanes keep tiles of sums in registers.
// At the end sums meet by shuffles over the lanes of a filter group, then in shared memory over the warps,
// always in the same order.
#pragma once
#include <type_traits>

#include "methods/epilogue.cuh"
#include "methods/hntmp/stage.cuh"
#include "methods/hntmp/taps.cuh"
#include "platform/gpu/overlap.h"

namespace convx::hntmp {

// Sums Count values over `slots` neighbouring lanes and writes them to shared memory. Each exchange halves
// what a lane carries on: first and count tell which of the values those are. At most Lanes / 2 slots.
template <int Lanes, int Mask, int Count, class A>
CONVX_DEVICE void write_totals(const A (&value)[Count], int slot, int slots, int first, int count,
                               A* shared) {
  if constexpr (2 * Mask < Lanes) {
    if (Mask < slots) {
      constexpr int kHalf = (Count + 1) / 2;
      const bool upper = (slot & Mask) != 0;
      A kept[kHalf];
      CONVX_UNROLL
      for (int i = 0; i < kHalf; ++i) {
        // Two named values: a choice between array elements would keep the array in memory.
        const A low = value[i], high = i + kHalf < Count ? A(value[i + kHalf < Count ? i + kHalf : 0]) : A(0);
        kept[i] = (upper ? A(high) : A(low)) + shuffle_xor<Lanes>(upper ? A(low) : A(high), Mask);
      }
      first += upper ? kHalf : 0;
      count = upper ? count - kHalf : min(count, kHalf);
      write_totals<Lanes, 2 * Mask>(kept, slot, slots, first, count, shared);
      return;
    }
  }
  CONVX_UNROLL
  for (int i = 0; i < Count; ++i) {
    if (i < count) shared[first + i] = value[i];
  }
}

// Where a block works.
struct Place {
  int64_t image_group;  // image * groups + group
  int group, channel_block, split, row, column;
};

template <int TileAt, class T, class A>
CONVX_DEVICE Place place_of(const Arguments<T, A>& a, uint32_t block) {
  constexpr Tile kTile = tile_of(TileAt);
  Place place;
  uint32_t rest = a.tiles.quotient(block);
  const uint32_t tile = block - rest * a.tiles.divisor;
  const uint32_t down = a.tiles_across.quotient(tile);
  place.row = static_cast<int>(down) * kTile.height;
  place.column = static_cast<int>(tile - down * a.tiles_across.divisor) * kTile.width;
  const uint32_t blocks = a.splits.quotient(rest);
  place.split = static_cast<int>(rest - blocks * a.splits.divisor);
  rest = a.channel_blocks.quotient(blocks);
  place.channel_block = static_cast<int>(blocks - rest * a.channel_blocks.divisor);
  place.image_group = rest;
  place.group = static_cast<int>(a.groups.remainder(rest));
  return place;
}

// Of the place's image and group: its channel's first element, in planes of `plane` pixels.
template <bool ChannelsLast>
CONVX_DEVICE int64_t first_of(const Place& place, int channels, int channel, int64_t plane) {
  if constexpr (ChannelsLast) {
    return (place.image_group - place.group) * channels * plane +
           static_cast<int64_t>(place.group) * channels + channel;
  } else {
    return (place.image_group * channels + channel) * plane;
  }
}

// The warps' sums, one pixel of one channel a thread, neighbours on neighbours in memory; two at a time,
// and all loads before the first sum.
template <int Lanes, bool ChannelsLast, int TileAt, class T, class A>
CONVX_DEVICE void write_back(const Arguments<T, A>& a, const Place& place, const A* sums) {
  constexpr Tile kTile = tile_of(TileAt);
  constexpr int kPixels = kTile.pixels(), kMostWarps = 256 / Lanes;
  constexpr int kAtOnce = ChannelsLast && sizeof(T) == 8 ? 1 : 2;  // RDNA has scalar registers for no more
  const int count = a.block_channels * kPixels, threads = static_cast<int>(blockDim.x);
  const int first = place.channel_block * a.block_channels, warps = threads / Lanes;
  const int block_channels_log2 = log2_of(Lanes * kTile.filters) - a.slots_log2;
  const int64_t origin = first_of<ChannelsLast>(place, a.result_channels, first, a.result_plane);
  const auto place_in_tile = [&](int i, int& channel, int& pixel) {
    if constexpr (ChannelsLast) {
      pixel = i >> block_channels_log2;
      channel = i & (a.block_channels - 1);
    } else {
      channel = i / kPixels;
      pixel = i - channel * kPixels;
    }
  };
  const auto among_all = [&](int channel) {  // of the block's, or the last of the group
    return place.group * a.result_channels + min(first + channel, a.result_channels - 1);
  };
  const auto channel_of = [&](int i) {
    int channel, pixel;
    place_in_tile(min(i, count - 1), channel, pixel);
    return among_all(channel);
  };
  // body(index of the result), where there is one.
  const auto with_index = [&](int i, const auto& body) {
    int channel, pixel;
    place_in_tile(i, channel, pixel);
    const int y = place.row + pixel / kTile.width, x = place.column + pixel % kTile.width;
    if (i >= count || first + channel >= a.result_channels) return;
    if (y >= a.result_height || x >= a.result_width) return;
    const int at = y * a.result_width + x;
    body(origin + (ChannelsLast ? static_cast<int64_t>(at) * pixel_step(a, a.result_channels) + channel
                                : channel * a.result_plane + at));
  };
  CONVX_NO_UNROLL
  for (int begin = threadIdx.x; begin < count; begin += kAtOnce * threads) {
    A total[kAtOnce];
    CONVX_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      int channel, pixel;
      place_in_tile(min(begin + j * threads, count - 1), channel, pixel);
      const A* const from = sums + channel * kPixels + pixel;
      A part[kMostWarps];
      CONVX_UNROLL
      for (int warp = 0; warp < kMostWarps; ++warp) part[warp] = warp < warps ? from[warp * count] : A(0);
      total[j] = part[0];
      CONVX_UNROLL
      for (int warp = 1; warp < kMostWarps; ++warp) total[j] += part[warp];
      if (a.bias != nullptr && a.partial == nullptr) total[j] += widen(a.bias[among_all(channel)]);
    }
    if (a.partial == nullptr) {
      finish(
          total, a.finishing, [&](int j) { return channel_of(begin + j * threads); },
          [&](T(&residuals)[kAtOnce]) {
            CONVX_UNROLL
            for (int j = 0; j < kAtOnce; ++j) {
              residuals[j] = T{};
              with_index(begin + j * threads,
                         [&](int64_t index) { residuals[j] = *residual_of(a.finishing, a.result + index); });
            }
          });
    }
    CONVX_UNROLL
    for (int j = 0; j < kAtOnce; ++j) {
      with_index(begin + j * threads, [&](int64_t index) {
        if (a.partial != nullptr) {
          a.partial[place.split * a.results + index] = total[j];
        } else {
          a.result[index] = narrow<T>(total[j]);
        }
      });
    }
  }
}

template <int Lanes, class T, bool ChannelsLast, int TileAt>
CONVX_KERNEL(256, 1)
hntmp_kernel(Arguments<T, Accumulator<T>> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using A = Accumulator<T>;
  constexpr Tile kTile = tile_of(TileAt);
  constexpr int kStages = kTile.stages;
  using Staged = std::conditional_t<kTile.whole_filter(), T, A>;
  CONVX_DYNAMIC_SHARED(shared);
  const int warp = static_cast<int>(threadIdx.x) / Lanes, lane = static_cast<int>(threadIdx.x) % Lanes;
  const int warps = static_cast<int>(blockDim.x) / Lanes;
  // Lanes of one filter group are neighbours, so that they meet by the shuffles of the smallest masks.
  const int slot = lane & (a.slots - 1), filters = lane >> a.slots_log2;
  const Place place = place_of<TileAt>(a, blockIdx.x);
  const int row = place.row * (kTile.any() ? a.stride_h : kTile.stride) - a.top;
  const int column = place.column * (kTile.any() ? a.stride_w : kTile.stride) - a.left;
  unsigned char* const ring = shared + warp * (kStages * a.stage_bytes);

  // This warp's source channels: `slots` from `channel`, then every step-th group of them.
  int channel = (place.split * warps + warp) * a.slots;
  const int step = static_cast<int>(a.splits.divisor) * warps * a.slots;
  const T* source = a.source + first_of<ChannelsLast>(place, a.source_channels, channel, a.source_plane);
  const T* weight =
      a.weight + ((static_cast<int64_t>(place.group) * a.channel_blocks.divisor + place.channel_block) *
                      a.source_channels +
                  channel) *
                     a.weight_elements;

  // A window's elements lie at the same places of every plane; the first row of `rows` may be above it. The
  // height of filters that come row by row is known at run time, and seven at most.
  constexpr bool kKnown = kTile.whole_filter(), kRowPieces = kTile.staging == Staging::rows;
  constexpr int kCount = kTile.pairs(sizeof(T)) ? 2 : 1;
  constexpr int kNeeded = kTile.any() ? kTile.width : (kTile.width - 1) * kTile.stride + kTile.filter_width;
  constexpr int kWidth = kTile.staged_columns(kNeeded, sizeof(T));
  constexpr int kHeight = (kTile.height - 1) * kTile.stride + (kKnown ? kTile.filter_height : 7);
  const int before = kCount == 2 && !kRowPieces ? column & 1 : 0;  // columns staged before the window
  constexpr int kMost = kTile.any() ? 1 : kHeight * kWidth / kCount;
  const Pieces<Lanes, kCount, kMost> pieces(
      kKnown ? kMost : a.window_positions, lane, [&](int piece, bool& inside) {
        const int down = piece * kCount / kWidth;
        const int y = row + down;
        const int x = (kRowPieces ? 0 : column - before) + piece * kCount - down * kWidth;
        inside = y >= 0 && y < a.source_height && x >= 0 && x < a.source_width;
        return inside ? y * a.source_width + x : 0;
      });
  const auto stage_filters = [&](unsigned char* to, int first) {
    constexpr Tile kStaged = tile_of(TileAt);
    const int channels = min(a.source_channels - first, a.slots);
    stage_pieces<Lanes, Lanes * kStaged.filters * kStaged.filter_height * kStaged.filter_width>(
        reinterpret_cast<T*>(to + a.weight_offset), weight, channels * a.weight_elements,
        a.slots * a.weight_elements, lane);
    weight += static_cast<int64_t>(step) * a.weight_elements;
  };
  const auto stage_window = [&](unsigned char* to) {
    constexpr Tile kStaged = tile_of(TileAt);
    const int channels = min(a.source_channels - channel, a.slots);
    Staged* const window = reinterpret_cast<Staged*>(to);
    if constexpr (ChannelsLast) {
      constexpr bool kImage = kStaged.staging == Staging::image;
      stage_pixels<Lanes>(a, window, source, channels, kImage ? 0 : row,
                          kImage || kRowPieces ? 0 : column - before, lane);
    } else if constexpr (kStaged.staging == Staging::image) {
      stage_pieces<Lanes, 0>(window, source, channels * kStaged.pixels(), a.slots * kStaged.pixels(), lane);
    } else if constexpr (kStaged.any()) {
      stage_any_window<Lanes>(a, window, source, channels, row, column, lane);
    } else {
      pieces.stage(a, window, source, channels);
    }
    source += step * (ChannelsLast ? 1 : a.source_plane);
  };

  A sum[kTile.sums()];
  CONVX_UNROLL
  for (int i = 0; i < kTile.sums(); ++i) sum[i] = A(0);
  int used = channel;     // the first source channel of the stage in use
  int fill = 0, use = 0;  // places in the ring, in bytes
  const int ring_bytes = kStages * a.stage_bytes;
  // Packed filters are complete before the kernel before this one begins: they come while that one ends.
  CONVX_NO_UNROLL
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    const int first = channel + ahead * step;
    if (first < a.source_channels) stage_filters(ring + ahead * a.stage_bytes, first);
  }
  take_turn();
  CONVX_NO_UNROLL
  for (int ahead = 1; ahead < kStages; ++ahead) {
    if (channel < a.source_channels) stage_window(ring + fill);
    channel += step;
    commit_copies();
    fill += a.stage_bytes;
  }
  CONVX_NO_UNROLL
  for (; used < a.source_channels; used += step) {
    wait_copies<kStages - 2>();
    warp_barrier<Lanes>();  // the stage has come, and the one before has been used by all lanes
    if (channel < a.source_channels) {
      stage_filters(ring + fill, channel);
      stage_window(ring + fill);
    }
    channel += step;
    commit_copies();
    fill = fill + a.stage_bytes == ring_bytes ? 0 : fill + a.stage_bytes;
    const Staged* window = reinterpret_cast<const Staged*>(ring + use) + slot * a.channel_stride;
    const T* taps = reinterpret_cast<const T*>(ring + use + a.weight_offset) + slot * a.weight_elements +
                    filters * kTile.filters;
    if constexpr (kKnown) {
      add_filter<TileAt>(sum, window + before, taps, a.block_channels);
    } else if constexpr (kTile.any()) {
      add_taps<TileAt>(a, sum, window, taps);
    } else {
      add_filter_rows<TileAt>(sum, window, taps, a.block_channels, a.filter_height);
    }
    use = use + a.stage_bytes == ring_bytes ? 0 : use + a.stage_bytes;
  }
  wait_copies<0>();
  block_barrier();  // the sums take the place of all warps' rings
  A* const sums = reinterpret_cast<A*>(shared);
  write_totals<Lanes, 1>(sum, slot, a.slots, 0, kTile.sums(),
                         sums + (warp * a.block_channels + filters * kTile.filters) * kTile.pixels());
  block_barrier();
  write_back<Lanes, ChannelsLast, TileAt>(a, place, sums);
}

// The second step of a split: the splits' sums in order, then the epilogue.
constexpr int kFinishThreads = 128;

template <class T>
CONVX_KERNEL(kFinishThreads, 1)
hntmp_finish_kernel(const Accumulator<T>* partial, const T* bias, T* result, int64_t results, int splits,
                    FastDivide plane, FastDivide channels, Finishing<T> finishing) {
  const uint32_t i = blockIdx.x * kFinishThreads + threadIdx.x;
  if (i >= results) return;
  take_turn();
  Accumulator<T> total = partial[i];
  for (int split = 1; split < splits; ++split) total += partial[split * results + i];
  const uint32_t channel = channels.remainder(plane.quotient(i));
  result[i] = finished(total + bias_of(bias, channel), finishing, channel, result + i);
}

}  // namespace convx::hntmp
