// Weight gradient of channels_last depthwise convolution. Lanes lie along the channels; a thread owns one or
// two channels and a tile of output columns and walks down the rows, so that every input row is loaded once
// and meets the last output rows, which wait in registers (row reuse), and each of its columns meets all
// outputs of the tile (column reuse).
#pragma once
#include "../packed.cuh"
#include "../partial_sum.cuh"
#include "geometry.h"
#include "platform/platform.h"
#include "tiles.h"

namespace convx::depthwise {

struct ChannelsWeightArguments {
  const void* input;
  const void* output_grad;
  void* result;  // T [channel][tap] with one partial sum, else float [partial][tap][channel]
  int channels, slices, blocks;
  int in_height, in_width, out_height, out_width;
  int padding_top, padding_left;
  int across, across_tiles, shares;
  int first_step, end_step, chunk_steps;
  int64_t units;
  int64_t pixel_bytes, in_row_bytes, out_row_bytes;
  FastDivide vectors, unit_tiles, chunks;
};

// What a thread reads of one pixel: channels as they lie in memory.
template <class T, int Channels>
struct ChannelWord {
  static_assert(Channels == 1 || sizeof(T) == 2, "pairs of 16-bit channels");
  uint32_t bits = 0;
  CONVX_DEVICE void read(const unsigned char* bytes) {
    const T* const address = reinterpret_cast<const T*>(bytes);
    if constexpr (Channels * sizeof(T) == 4) {
      bits = load_packed<1>(address).word[0];
    } else {
      bits = load<T, 1>(address).element[0].bits;
    }
  }
  CONVX_DEVICE float get(int channel) const { return unpack<T>(bits, channel); }
};

// Bit j where column + j lies in [0, width).
template <int Count>
CONVX_DEVICE uint32_t inside_mask(int column, int width) {
  uint32_t mask = 0;
  CONVX_UNROLL
  for (int j = 0; j < Count; ++j) {
    if (static_cast<unsigned>(column + j) < static_cast<unsigned>(width)) mask |= 1u << j;
  }
  return mask;
}

// Columns: output columns of a tile.
template <class T, int Lanes, int Filter, int Stride, int Channels, int Columns, int Blocks>
CONVX_KERNEL(kChannelsWeightThreads, Blocks)
channels_weight_kernel(ChannelsWeightArguments a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  constexpr int kTaps = Filter * Filter, kWindow = (Columns - 1) * Stride + Filter;
  constexpr int kRing = (Filter + Stride - 1) / Stride;  // output rows that an input row meets
  using Word = ChannelWord<T, Channels>;
  CONVX_DYNAMIC_SHARED(shared);
  const int place = threadIdx.x % a.across, share = threadIdx.x / a.across;
  const int block = blockIdx.x % a.blocks, slice = blockIdx.x / a.blocks;
  const uint32_t flat = static_cast<uint32_t>(block) * a.across + place;
  const int across_tile = a.vectors.quotient(flat);
  const int channel = static_cast<int>(flat - across_tile * a.vectors.divisor) * Channels;
  const bool active = across_tile < a.across_tiles && share < a.shares;
  const int first_unit = static_cast<int>(a.units * slice / a.slices);
  const int end_unit = active ? static_cast<int>(a.units * (slice + 1) / a.slices) : first_unit;

  float sum[Channels][kTaps] = {};
  for (int unit = first_unit + share; unit < end_unit; unit += a.shares) {
    // Neighbouring tiles first: they share columns, which the cache then still holds.
    const int row_chunk = a.unit_tiles.quotient(unit);
    const int tile = across_tile + unit - row_chunk * static_cast<int>(a.unit_tiles.divisor);
    const int image = a.chunks.quotient(row_chunk);
    const int begin = a.first_step + (row_chunk - image * static_cast<int>(a.chunks.divisor)) * a.chunk_steps;
    const int end = begin + a.chunk_steps < a.end_step ? begin + a.chunk_steps : a.end_step;
    const int out_column = tile * Columns, in_column = out_column * Stride - a.padding_left;
    const uint32_t in_mask = inside_mask<kWindow>(in_column, a.in_width);
    const uint32_t out_mask = inside_mask<Columns>(out_column, a.out_width);
    // The rows to be read next; addresses advance, for the offsets of all columns would take registers.
    int in_row = begin * Stride - a.padding_top, out_row = begin - kRing + 1;
    const unsigned char* input = static_cast<const unsigned char*>(a.input) + channel * sizeof(T) +
                                 (static_cast<int64_t>(image) * a.in_height + in_row) * a.in_row_bytes +
                                 in_column * a.pixel_bytes;
    const unsigned char* output_grad =
        static_cast<const unsigned char*>(a.output_grad) + channel * sizeof(T) +
        (static_cast<int64_t>(image) * a.out_height + out_row) * a.out_row_bytes + out_column * a.pixel_bytes;
    const auto read_input = [&](Word(&row)[kWindow]) {
      const uint32_t mask = static_cast<unsigned>(in_row) < static_cast<unsigned>(a.in_height) ? in_mask : 0;
      const unsigned char* source = input;
      CONVX_UNROLL
      for (int j = 0; j < kWindow; ++j, source += a.pixel_bytes) {
        row[j] = Word();
        if (mask >> j & 1u) row[j].read(source);
      }
      ++in_row;
      input += a.in_row_bytes;
    };
    const auto read_grad = [&](Word(&row)[Columns]) {
      const uint32_t mask =
          static_cast<unsigned>(out_row) < static_cast<unsigned>(a.out_height) ? out_mask : 0;
      const unsigned char* source = output_grad;
      CONVX_UNROLL
      for (int j = 0; j < Columns; ++j, source += a.pixel_bytes) {
        row[j] = Word();
        if (mask >> j & 1u) row[j].read(source);
      }
      ++out_row;
      output_grad += a.out_row_bytes;
    };

    float grad[kRing][Columns][Channels];
    const auto keep_grad = [&](int slot, const Word(&row)[Columns]) {
      CONVX_UNROLL
      for (int j = 0; j < Columns; ++j) {
        CONVX_UNROLL
        for (int c = 0; c < Channels; ++c) grad[slot][j][c] = row[j].get(c);
      }
    };
    Word input_row[kWindow], grad_row[Columns];
    // Phase p of the walk puts its output row in slot p; the kRing - 1 rows before lie in slots 1 and up.
    CONVX_UNROLL
    for (int slot = 1; slot < kRing; ++slot) {
      read_grad(grad_row);
      keep_grad(slot, grad_row);
    }
    read_grad(grad_row);
    read_input(input_row);
    for (int base = begin; base < end; base += kRing) {
      CONVX_UNROLL
      for (int phase = 0; phase < kRing; ++phase) {
        const int step = base + phase;
        if (step >= end) break;
        CONVX_UNROLL
        for (int half = 0; half < Stride; ++half) {
          float window[kWindow][Channels];
          CONVX_UNROLL
          for (int j = 0; j < kWindow; ++j) {
            CONVX_UNROLL
            for (int c = 0; c < Channels; ++c) window[j][c] = input_row[j].get(c);
          }
          if (half == 0) keep_grad(phase, grad_row);
          // The next row's loads are in flight during this row's arithmetic; the last row's have no
          // successor.
          const bool last = step + 1 >= end;
          if (half == 0 && !last) read_grad(grad_row);
          if (half + 1 < Stride || !last) read_input(input_row);
          CONVX_UNROLL
          for (int r = half; r < Filter; r += Stride) {
            // Tap row r meets the output row of r / Stride steps before.
            const int slot = (phase - r / Stride + kRing) % kRing;
            CONVX_UNROLL
            for (int v = 0; v < Columns; ++v) {
              CONVX_UNROLL
              for (int q = 0; q < Filter; ++q) {
                CONVX_UNROLL
                for (int c = 0; c < Channels; ++c) {
                  float& tap = sum[c][r * Filter + q];
                  tap = multiply_add(window[v * Stride + q][c], grad[slot][v][c], tap);
                }
              }
            }
          }
        }
      }
    }
  }

  // The block's shares add up in turn: [tap of channel][place].
  float* const totals = reinterpret_cast<float*>(shared);
  for (int turn = a.shares - 1; turn > 0; --turn) {
    if (share == turn) {
      CONVX_UNROLL
      for (int i = 0; i < Channels * kTaps; ++i) {
        float* const total = totals + i * a.across + place;
        *total = turn == a.shares - 1 ? sum[i / kTaps][i % kTaps] : *total + sum[i / kTaps][i % kTaps];
      }
    }
    block_barrier();
  }
  if (share != 0 || !active) return;
  const int64_t partial = static_cast<int64_t>(slice) * a.across_tiles + across_tile;
  const bool direct = a.slices == 1 && a.across_tiles == 1;
  CONVX_UNROLL
  for (int i = 0; i < Channels * kTaps; ++i) {
    const int c = i / kTaps, tap = i % kTaps;
    const float total = a.shares > 1 ? sum[c][tap] + totals[i * a.across + place] : sum[c][tap];
    if (direct) {
      static_cast<T*>(a.result)[static_cast<int64_t>(channel + c) * kTaps + tap] = narrow<T>(total);
    } else {
      static_cast<float*>(a.result)[(partial * kTaps + tap) * a.channels + channel + c] = total;
    }
  }
}

}  // namespace convx::depthwise
