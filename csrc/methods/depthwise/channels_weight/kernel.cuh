// Weight gradient of channels_last depthwise convolution. Lanes lie along the channels; a thread owns one or
// two channels and a tile of output columns and walks down the rows, so that every input row is loaded once
// and meets the last output rows, which wait in registers (row reuse), and each of its columns meets all
// outputs of the tile (column reuse).
#pragma once
#include "../exact_products.cuh"
#include "../packed.cuh"
#include "geometry.h"
#include "methods/sums.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"
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
  uint32_t pixel_bytes, in_row_bytes, out_row_bytes;
  FastDivide vectors, unit_tiles, chunks;
};

// What a thread reads of one pixel: channels as they lie in memory.
template <class T, int Channels>
struct ChannelWords {
  static constexpr int kBytes = Channels * static_cast<int>(sizeof(T));
  Packed<(kBytes + 3) / 4> packed{};
  CONVX_DEVICE void read(const unsigned char* bytes) {
    const T* const address = reinterpret_cast<const T*>(bytes);
    if constexpr (kBytes >= 4) {
      packed = load_packed<kBytes / 4>(address);
    } else {
      packed.word[0] = load<T, 1>(address).element[0].bits;
    }
  }
  CONVX_DEVICE float get(int channel) const { return packed.template get<T>(channel); }
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

// The slice's products of one tap of a writer's channel and tile.
template <class T, int Filter, int Stride, int Channels, int Columns>
CONVX_DEVICE float exact_sum(const ChannelsWeightArguments& arguments, uint32_t writer, int c, int tap) {
  const ChannelsWeightArguments& a = read_anew(arguments);
  const int slice = blockIdx.x / a.blocks;
  const int first_tile = a.vectors.quotient(writer), r = tap / Filter;
  const int64_t channel = static_cast<int64_t>(writer - first_tile * a.vectors.divisor) * Channels + c;
  float sum = 0;
  for (int unit = static_cast<int>(a.units * slice / a.slices);
       unit < static_cast<int>(a.units * (slice + 1) / a.slices); ++unit) {
    const int row_chunk = a.unit_tiles.quotient(unit), image = a.chunks.quotient(row_chunk);
    const int tile = first_tile + unit - row_chunk * static_cast<int>(a.unit_tiles.divisor);
    const int begin = a.first_step + (row_chunk - image * static_cast<int>(a.chunks.divisor)) * a.chunk_steps;
    const ExactProducts<T> products{
        static_cast<const T*>(a.input) + int64_t(image) * a.in_height * a.in_width * a.channels + channel,
        static_cast<const T*>(a.output_grad) + int64_t(image) * a.out_height * a.out_width * a.channels +
            channel,
        a.in_height,
        a.in_width,
        a.out_height,
        a.out_width,
        int64_t(a.in_width) * a.channels,
        int64_t(a.out_width) * a.channels,
        a.channels,
        a.channels,
        Stride,
        Stride,
        r - a.padding_top,
        tap % Filter - a.padding_left};
    for (int step = begin; step < begin + a.chunk_steps && step < a.end_step; ++step) {
      sum += products.of_row(step - r / Stride, tile * Columns, (tile + 1) * Columns, 1);
    }
  }
  return sum;
}

// Reads those pixels of a row that lie in the image; zeros for the others.
template <class Words, int Count>
CONVX_DEVICE void read_row(Words (&row)[Count], uint32_t mask, const unsigned char* first,
                           uint32_t pixel_bytes) {
  CONVX_UNROLL
  for (int j = 0; j < Count; ++j) {
    row[j] = Words();
    if (mask >> j & 1u) row[j].read(first + pixel_bytes * static_cast<uint32_t>(j));
  }
}

template <class Words, int Count, int Channels>
CONVX_DEVICE void widen_row(const Words (&row)[Count], float (&values)[Count][Channels]) {
  CONVX_UNROLL
  for (int j = 0; j < Count; ++j) {
    CONVX_UNROLL
    for (int c = 0; c < Channels; ++c) values[j][c] = row[j].get(c);
  }
}

// Adds the products of an input row with an output row to the sums of a row of taps.
template <int Stride, int Window, int Columns, int Filter, int Channels>
CONVX_DEVICE void add_row(const float (&window)[Window][Channels], const float (&grad)[Columns][Channels],
                          float (&row_sum)[Filter][Channels]) {
  CONVX_UNROLL
  for (int v = 0; v < Columns; ++v) {
    CONVX_UNROLL
    for (int i = 0; i < Filter * Channels; ++i) {
      const int q = i / Channels, c = i % Channels;
      row_sum[q][c] = multiply_add(window[v * Stride + q][c], grad[v][c], row_sum[q][c]);
    }
  }
}

template <int Channels, int Taps>
CONVX_DEVICE bool are_finite(const float (&sum)[Channels][Taps]) {
  float zero = 0;
  CONVX_UNROLL
  for (int i = 0; i < Channels * Taps; ++i) zero = multiply_add(sum[i / Taps][i % Taps], 0.0f, zero);
  return is_finite(zero);
}

// Shares apart in kApart sums, then pairwise: one chain over all of them rounds the most of all steps.
template <class Share>
CONVX_DEVICE float sum_of_shares(int shares, const Share& share) {
  constexpr int kApart = 8;
  float part[2 * kApart - 1] = {};
  for (int first = 0; first < shares; first += kApart) {
    CONVX_UNROLL
    for (int k = 0; k < kApart; ++k) {
      if (first + k < shares) part[k] += share(first + k);
    }
  }
  CONVX_UNROLL
  for (int pair = 0; pair < kApart - 1; ++pair) part[kApart + pair] = part[2 * pair] + part[2 * pair + 1];
  return part[2 * kApart - 2];
}

// float32 adds up a row apart, which keeps the chain of roundings short; the 16-bit formats round their
// result far more coarsely.
template <class T>
constexpr bool kAddsRowsApart = sizeof(T) == 4;

// Columns: output columns of a tile.
template <class T, int Lanes, int Filter, int Stride, int Channels, int Columns>
CONVX_KERNEL((kChannelsWeightThreads<T, Lanes, Filter, Stride, Channels, Columns>), 1)
channels_weight_kernel(ChannelsWeightArguments arguments) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  const ChannelsWeightArguments& a = arguments;
  constexpr int kTaps = Filter * Filter, kWindow = (Columns - 1) * Stride + Filter;
  constexpr int kRing = (Filter + Stride - 1) / Stride;  // output rows that an input row meets
  using Words = ChannelWords<T, Channels>;
  CONVX_DYNAMIC_SHARED(shared);
  const int place = threadIdx.x % a.across, share = threadIdx.x / a.across;
  const int block = blockIdx.x % a.blocks, slice = blockIdx.x / a.blocks;
  const uint32_t flat = static_cast<uint32_t>(block) * a.across + place;
  const int across_tile = a.vectors.quotient(flat);
  const int channel = static_cast<int>(flat - across_tile * a.vectors.divisor) * Channels;
  const bool active = across_tile < a.across_tiles && share < a.shares;
  const int first_unit = static_cast<int>(a.units * slice / a.slices);
  const int end_unit = active ? static_cast<int>(a.units * (slice + 1) / a.slices) : first_unit;

  // Made to depend on the thread, which keeps them in registers: NVIDIA's compiler fetches what is the same
  // for all anew at each use, and a fetch between loads shares their scoreboards and waits for them all.
  const auto own = [&](uint32_t value) { return active ? value : 0; };
  const uint32_t pixel_bytes = own(a.pixel_bytes);
  const uint32_t in_row_bytes = own(a.in_row_bytes), out_row_bytes = own(a.out_row_bytes);
  const uint32_t in_height = own(a.in_height), out_height = own(a.out_height);

  take_turn();
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
                                 (static_cast<int64_t>(image) * a.in_height + in_row) * in_row_bytes +
                                 in_column * static_cast<int64_t>(pixel_bytes);
    const unsigned char* output_grad =
        static_cast<const unsigned char*>(a.output_grad) + channel * sizeof(T) +
        (static_cast<int64_t>(image) * a.out_height + out_row) * out_row_bytes +
        out_column * static_cast<int64_t>(pixel_bytes);
    const auto read_input = [&](Words(&row)[kWindow], bool wanted) {
      const bool inside = wanted && static_cast<uint32_t>(in_row) < in_height;
      read_row(row, inside ? in_mask : 0, input, pixel_bytes);
      ++in_row;
      input += in_row_bytes;
    };
    const auto read_grad = [&](Words(&row)[Columns], bool wanted) {
      const bool inside = wanted && static_cast<uint32_t>(out_row) < out_height;
      read_row(row, inside ? out_mask : 0, output_grad, pixel_bytes);
      ++out_row;
      output_grad += out_row_bytes;
    };

    float grad[kRing][Columns][Channels];
    Words input_row[kWindow], grad_row[Columns];
    // Phase p of the walk puts its output row in slot p; the kRing - 1 rows before lie in slots 1 and up.
    CONVX_UNROLL
    for (int slot = 1; slot < kRing; ++slot) {
      read_grad(grad_row, true);
      widen_row(grad_row, grad[slot]);
    }
    read_grad(grad_row, true);
    read_input(input_row, true);
    for (int base = begin; base < end; base += kRing) {
      CONVX_UNROLL
      for (int phase = 0; phase < kRing; ++phase) {
        const int step = base + phase;
        if (step >= end) break;
        CONVX_UNROLL
        for (int half = 0; half < Stride; ++half) {
          float window[kWindow][Channels];
          widen_row(input_row, window);
          if (half == 0) widen_row(grad_row, grad[phase]);
          // The next row's loads are in flight during this row's arithmetic; the last row's load nothing.
          const bool more = step + 1 < end;
          if (half == 0) read_grad(grad_row, more);
          read_input(input_row, half + 1 < Stride || more);
          CONVX_UNROLL
          for (int r = half; r < Filter; r += Stride) {
            // Tap row r meets the output row of r / Stride steps before.
            const int slot = (phase - r / Stride + kRing) % kRing;
            float row_sum[Filter][Channels];
            CONVX_UNROLL
            for (int i = 0; i < Filter * Channels; ++i) {
              const int q = i / Channels, c = i % Channels;
              row_sum[q][c] = kAddsRowsApart<T> ? 0.0f : sum[c][r * Filter + q];
            }
            add_row<Stride>(window, grad[slot], row_sum);
            CONVX_UNROLL
            for (int i = 0; i < Filter * Channels; ++i) {
              const int q = i / Channels, c = i % Channels;
              float& tap = sum[c][r * Filter + q];
              tap = kAddsRowsApart<T> ? tap + row_sum[q][c] : row_sum[q][c];
            }
          }
        }
      }
    }
  }

  const bool direct = a.slices == 1 && a.across_tiles == 1;
  const auto write = [&](uint32_t writer, int c, int tap, float total) {
    const int tile = a.vectors.quotient(writer);
    if (tile >= a.across_tiles) return;
    const int64_t target = static_cast<int64_t>(writer - tile * a.vectors.divisor) * Channels + c;
    if (direct) {
      static_cast<T*>(a.result)[target * kTaps + tap] = narrow<T>(total);
    } else {
      const int64_t partial = static_cast<int64_t>(slice) * a.across_tiles + tile;
      static_cast<float*>(a.result)[(partial * kTaps + tap) * a.channels + target] = total;
    }
  };
  if (a.shares == 1) {
    if (!active) return;
    CONVX_UNROLL
    for (int i = 0; i < Channels * kTaps; ++i) write(flat, i / kTaps, i % kTaps, sum[i / kTaps][i % kTaps]);
    if (are_finite(sum)) return;
    CONVX_NO_UNROLL
    for (int i = 0; i < Channels * kTaps; ++i) {
      write(flat, i / kTaps, i % kTaps,
            exact_sum<T, Filter, Stride, Channels, Columns>(arguments, flat, i / kTaps, i % kTaps));
    }
    return;
  }
  // All threads add up the shares, a channel at a time: [tap][share][place].
  float* const totals = reinterpret_cast<float*>(shared);
  CONVX_UNROLL
  for (int c = 0; c < Channels; ++c) {
    if (c > 0) block_barrier();
    CONVX_UNROLL
    for (int tap = 0; tap < kTaps; ++tap) totals[tap * blockDim.x + threadIdx.x] = sum[c][tap];
    block_barrier();
    for (int i = threadIdx.x; i < a.across * kTaps; i += blockDim.x) {
      const int tap = i / a.across, column = i - tap * a.across;
      const uint32_t writer = static_cast<uint32_t>(block) * a.across + column;
      float total = sum_of_shares(
          a.shares, [&](int share) { return totals[tap * blockDim.x + share * a.across + column]; });
      if (!is_finite(total))
        total = exact_sum<T, Filter, Stride, Channels, Columns>(arguments, writer, c, tap);
      write(writer, c, tap, total);
    }
  }
}

}  // namespace convx::depthwise
