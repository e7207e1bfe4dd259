// HNTMP of a network's first convolution: a thread owns output channels and keeps their sums for a tile of
// pixels in registers; a tap of its filters is read from shared memory once for all of them.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/hntmp/stem/geometry.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/overlap.h"

namespace convx::hntmp::stem {

template <class T>
struct Arguments {
  const T* source;
  const T* weight;  // in blocks of the order "crsk block_channels"
  T* result;
  const T* bias;
  int64_t source_elements, result_plane;
  int channels, source_height, source_width, result_channels, result_height, result_width;
  int top, left, stride_h, stride_w, dilation_h, dilation_w;
  int block_channels, taps, warps_down, filter_warps;
  int window_height, run, pieces, residue_pitch, pitch, channel_pitch;  // run, pieces: of a row in memory
  FastDivide tiles, tiles_across, channel_blocks;
  FastDivide by_pieces, by_height, by_channels, by_stride, by_filter, by_filter_width;
  Finishing<T> finishing;
};

template <class T>
struct Task {
  int64_t image;
  int first_channel, row, column;  // of the block's results
};

template <int TileWidth, class T>
CONVX_DEVICE Task<T> task_of(const Arguments<T>& a, int tile_height) {
  Task<T> task;
  const uint32_t rest = a.tiles.quotient(blockIdx.x);
  const uint32_t tile = blockIdx.x - rest * a.tiles.divisor;
  const uint32_t down = a.tiles_across.quotient(tile);
  task.image = a.channel_blocks.quotient(rest);
  const uint32_t block = rest - static_cast<uint32_t>(task.image) * a.channel_blocks.divisor;
  task.first_channel = static_cast<int>(block) * a.block_channels;
  task.row = static_cast<int>(down) * tile_height;
  task.column = static_cast<int>(tile - down * a.tiles_across.divisor) * TileWidth;
  return task;
}

// A row of the window in memory, of one channel or in channels_last of all, is read in pieces of 16 bytes
// that begin before the row does.
struct Piece {
  int channel, down;
  bool is_row;   // of the image; else above or below it
  int64_t from;  // the piece's first element
  int before;    // where that lies in the row, below zero before its beginning
};

template <bool ChannelsLast, class T>
CONVX_DEVICE Piece piece_of(const Arguments<T>& a, const Task<T>& task, int i) {
  constexpr int kCount = 16 / sizeof(T);
  Piece found;
  const int row = static_cast<int>(a.by_pieces.quotient(i));
  const int piece = i - row * a.pieces;
  found.channel = ChannelsLast ? 0 : static_cast<int>(a.by_height.quotient(row));
  found.down = row - found.channel * a.window_height;
  const int y = task.row * a.stride_h - a.top + found.down, x = task.column * a.stride_w - a.left;
  found.is_row = y >= 0 && y < a.source_height;
  const int64_t line = (task.image * (ChannelsLast ? 1 : a.channels) + found.channel) * a.source_height + y;
  const int64_t begin = (line * a.source_width + x) * (ChannelsLast ? a.channels : 1);
  found.from = (begin & -int64_t{kCount}) + piece * kCount;
  found.before = static_cast<int>(found.from - begin);
  return found;
}

template <class T>
CONVX_DEVICE Vector<T, 16 / sizeof(T)> read_piece(const Arguments<T>& a, const Piece& piece) {
  constexpr int kCount = 16 / sizeof(T);
  if (!piece.is_row) return {};
  if (piece.from >= 0 && piece.from + kCount <= a.source_elements)
    return load<T, kCount>(a.source + piece.from);
  Vector<T, kCount> values{};
  CONVX_UNROLL
  for (int j = 0; j < kCount; ++j) {
    const int64_t place = piece.from + j;
    if (place >= 0 && place < a.source_elements) values.element[j] = a.source[place];
  }
  return values;
}

// What lies outside of the image is zero.
template <bool ChannelsLast, class T>
CONVX_DEVICE void write_piece(const Arguments<T>& a, const Task<T>& task, const Piece& piece,
                              const Vector<T, 16 / sizeof(T)>& values, float* window) {
  const int first_column = task.column * a.stride_w - a.left;
  float* const to = window + piece.channel * a.channel_pitch + piece.down * a.pitch;
  CONVX_UNROLL
  for (int j = 0; j < static_cast<int>(16 / sizeof(T)); ++j) {
    const int place = piece.before + j;
    if (place < 0 || place >= a.run) continue;
    const int column = ChannelsLast ? static_cast<int>(a.by_channels.quotient(place)) : place;
    const int x = first_column + column;
    const int turn = static_cast<int>(a.by_stride.quotient(column)), residue = column - turn * a.stride_w;
    const int of_channel = ChannelsLast ? (place - column * a.channels) * a.channel_pitch : 0;
    to[of_channel + residue * a.residue_pitch + turn] =
        x >= 0 && x < a.source_width ? widen(values.element[j]) : 0.0f;
  }
}

// Several pieces of a thread are on their way at once.
template <bool ChannelsLast, class T>
CONVX_DEVICE void stage_window(const Arguments<T>& a, const Task<T>& task, float* window) {
  constexpr int kAtOnce = 4;
  const int count = (ChannelsLast ? 1 : a.channels) * a.window_height * a.pieces;
  const int threads = static_cast<int>(blockDim.x);
  CONVX_NO_UNROLL
  for (int first = threadIdx.x; first < count; first += kAtOnce * threads) {
    Vector<T, 16 / sizeof(T)> values[kAtOnce];
    CONVX_UNROLL
    for (int n = 0; n < kAtOnce; ++n) {
      values[n] = read_piece(a, piece_of<ChannelsLast>(a, task, min(first + n * threads, count - 1)));
    }
    CONVX_UNROLL
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * threads;
      if (i < count)
        write_piece<ChannelsLast>(a, task, piece_of<ChannelsLast>(a, task, i), values[n], window);
    }
  }
}

template <class T>
CONVX_DEVICE void stage_filters(const Arguments<T>& a, const Task<T>& task, float* filters, int* offsets) {
  constexpr int kCount = 16 / sizeof(T);
  const int count = a.taps * a.block_channels;  // whole pieces: of eight channels
  const T* const weight = a.weight + static_cast<int64_t>(task.first_channel) * a.taps;
  for (int i = threadIdx.x * kCount; i < count; i += blockDim.x * kCount) {
    const Vector<T, kCount> values = load<T, kCount>(weight + i);
    CONVX_UNROLL
    for (int j = 0; j < kCount; ++j) filters[i + j] = widen(values.element[j]);
  }
  for (int i = threadIdx.x; i <= a.taps; i += blockDim.x) {  // one more, which nobody uses, is read
    const int channel = static_cast<int>(a.by_filter.quotient(i));
    const int tap = i - channel * static_cast<int>(a.by_filter.divisor);
    const int r = static_cast<int>(a.by_filter_width.quotient(tap));
    const int column = (tap - r * static_cast<int>(a.by_filter_width.divisor)) * a.dilation_w;
    const int turn = static_cast<int>(a.by_stride.quotient(column)), residue = column - turn * a.stride_w;
    offsets[i] = channel * a.channel_pitch + r * a.dilation_h * a.pitch + residue * a.residue_pitch + turn;
  }
}

// The products of all taps of a thread's filters and pixels.
template <int Across, int Pixels>
CONVX_DEVICE void add_taps(float (&sum)[kFilters][Pixels], const float* window, const int* offsets,
                           const float* filters, int taps, int pitch) {
  int offset = offsets[0];
  CONVX_UNROLL_THRICE  // loads of a few taps on their way at once
      for (int tap = 0; tap < taps; ++tap) {
    const float* const from = window + offset;
    offset = offsets[tap + 1];
    Vector<float, 4> factor[kFilters / 4];
    CONVX_UNROLL
    for (int k = 0; k < kFilters / 4; ++k) {
      factor[k] = *reinterpret_cast<const Vector<float, 4>*>(filters + 4 * k);
    }
    filters += pitch;
    CONVX_UNROLL
    for (int p = 0; p < Pixels; ++p) {
      const float value = from[p * Across];
      CONVX_UNROLL
      for (int k = 0; k < kFilters; ++k) {
        sum[k][p] = multiply_add(value, factor[k / 4].element[k % 4], sum[k][p]);
      }
    }
  }
}

// A row of results along the pixels, of one channel: they lie Across apart.
template <int Across, int Pixels, class T>
CONVX_DEVICE void write_pixels(const Arguments<T>& a, float (&row)[Pixels], int64_t channel, T* place,
                               int exist) {
  finish(
      row, a.finishing, [&](int) { return channel; },
      [&](T(&residuals)[Pixels]) {
        CONVX_UNROLL
        for (int p = 0; p < Pixels; ++p) {
          residuals[p] = p * Across < exist ? *residual_of(a.finishing, place + p * Across) : T{};
        }
      });
  CONVX_UNROLL
  for (int p = 0; p < Pixels; ++p) {
    if (p * Across < exist) place[p * Across] = narrow<T>(row[p]);
  }
}

// A pixel's results, of channels that are neighbours.
template <class T>
CONVX_DEVICE void write_channels(const Arguments<T>& a, float (&row)[kFilters], int64_t channel, T* place,
                                 int exist) {
  finish(
      row, a.finishing, [&](int k) { return channel + min(k, exist - 1); },
      [&](T(&residuals)[kFilters]) { read_residuals(a.finishing, place, 0, exist, residuals); });
  Vector<T, kFilters> values;
  CONVX_UNROLL
  for (int k = 0; k < kFilters; ++k) values.element[k] = narrow<T>(row[k]);
  if (a.result_channels % kFilters == 0) return store(place, values);
  CONVX_UNROLL
  for (int k = 0; k < kFilters; ++k) {
    if (k < exist) place[k] = values.element[k];
  }
}

// Lanes of a warp that are not side by side: on rows below one another, or in channels_last, where a pixel's
// channels are neighbours in memory, on the same pixels with other filters.
template <int Lanes, class T, int Across, int Pixels, bool ChannelsLast>
CONVX_KERNEL(kMostThreads, 1)
stem_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  constexpr int kDown = ChannelsLast ? 1 : Lanes / Across, kTogether = ChannelsLast ? Lanes / Across : 1;
  CONVX_DYNAMIC_SHARED(shared);
  float* const filters = reinterpret_cast<float*>(shared);
  int* const offsets = reinterpret_cast<int*>(filters + a.taps * a.block_channels);
  float* const window = reinterpret_cast<float*>(offsets + (a.taps + 4) / 4 * 4);
  const Task<T> task = task_of<Across * Pixels>(a, a.warps_down * kDown);
  stage_filters(a, task, filters, offsets);  // packed: complete before the kernel before this one begins
  take_turn();
  stage_window<ChannelsLast>(a, task, window);
  block_barrier();
  const int warp = static_cast<int>(threadIdx.x) / Lanes, lane = static_cast<int>(threadIdx.x) % Lanes;
  const int filter_warp = warp / a.warps_down, row = warp - filter_warp * a.warps_down;
  const int across = lane % Across, down = ChannelsLast ? row : row * kDown + lane / Across;
  const int y = task.row + down, x = task.column + across;
  const int exist = y < a.result_height ? a.result_width - x : 0;  // columns from the first pixel on
  const float* const from = window + down * a.stride_h * a.pitch + across;
  const int channels = min(a.block_channels, a.result_channels - task.first_channel);
  const int64_t pixel = static_cast<int64_t>(y) * a.result_width + x;
  CONVX_NO_UNROLL
  for (int turn = filter_warp * kTogether * kFilters; turn < channels;
       turn += a.filter_warps * kTogether * kFilters) {
    const int first = turn + (ChannelsLast ? lane / Across * kFilters : 0);
    const int count = min(channels - first, kFilters);
    if (count <= 0) break;
    float sum[kFilters][Pixels];
    const int64_t channel = task.first_channel + first;
    CONVX_UNROLL
    for (int k = 0; k < kFilters; ++k) {
      const float bias = k < count ? bias_of(a.bias, channel + k) : 0.0f;
      CONVX_UNROLL
      for (int p = 0; p < Pixels; ++p) sum[k][p] = bias;
    }
    add_taps<Across>(sum, from, offsets, filters + first, a.taps, a.block_channels);
    if constexpr (ChannelsLast) {
      T* const place = a.result + (task.image * a.result_plane + pixel) * a.result_channels + channel;
      CONVX_UNROLL
      for (int p = 0; p < Pixels; ++p) {
        float values[kFilters];
        CONVX_UNROLL
        for (int k = 0; k < kFilters; ++k) values[k] = sum[k][p];
        if (p * Across < exist) {
          write_channels(a, values, channel, place + static_cast<int64_t>(p) * Across * a.result_channels,
                         count);
        }
      }
    } else {
      T* const place = a.result + (task.image * a.result_channels + channel) * a.result_plane + pixel;
      CONVX_UNROLL
      for (int k = 0; k < kFilters; ++k) {
        if (k < count) write_pixels<Across>(a, sum[k], channel + k, place + k * a.result_plane, exist);
      }
    }
  }
}

}  // namespace convx::hntmp::stem
