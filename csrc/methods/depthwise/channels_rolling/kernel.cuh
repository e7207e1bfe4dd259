// Depthwise forward and input gradient of stride 1 where channels are last, for filters of many taps. Lanes
// lie along the channels, Channels each; a lane owns Columns result columns and goes down an image: every
// source row is read and widened once and added to all result rows that it meets, whose sums roll through
// registers (row reuse). The filter is in shared memory as float: a tap is read once for Columns * Channels
// products.
#pragma once
#include "methods/depthwise/channels/shape.h"
#include "methods/depthwise/channels/write.cuh"
#include "methods/depthwise/channels_rolling/tiles.h"
#include "platform/gpu/opaque.h"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::channels_rolling {

using channels::Lane;
using channels::LaneFilter;

struct RollingShape : channels::ChannelsShape {
  int rows;  // of results, a unit
};

// Some result rows of an image, from a lane's first source and result column on.
struct Unit {
  const char* source;  // of the first row of taps of the first result row
  char* result;
  int rows, begin, end;  // result rows; of the source rows those that there are, one at least
};

template <int Filter>
CONVX_DEVICE Unit unit_of(const RollingShape& shape, uint32_t number, const char* source_lane,
                          char* result_lane, uint32_t source_pitch, uint32_t result_pitch) {
  const uint32_t image = shape.divide_row_tiles.quotient(number);
  const int y = static_cast<int>(shape.divide_row_tiles.remainder(number)) * shape.rows;
  const int source_y = y - shape.padding_top, left = shape.result_height - y;
  Unit unit;
  unit.rows = left < shape.rows ? left : shape.rows;
  unit.begin = source_y < 0 ? -source_y : 0;
  const int all = unit.rows + Filter - 1, there = shape.source_height - source_y;
  unit.end = all < there ? all : there;
  const int source_line = static_cast<int>(image) * shape.source_height + source_y;
  const int result_line = static_cast<int>(image) * shape.result_height + y;
  unit.source = source_lane + source_line * static_cast<int64_t>(source_pitch);
  unit.result = result_lane + result_line * static_cast<int64_t>(result_pitch);
  return unit;
}

// What becomes of a row's sums with what a row of source columns brings to them by a row of taps. First: the
// first of the source columns that there are; those before it and behind the last are zeros.
template <int Filter, int First, int Columns, int Channels, int Sources>
CONVX_DEVICE void add_row(const float (&value)[Sources][Channels], const float* taps,
                          const float (&before)[Columns * Channels], float (&after)[Columns * Channels]) {
  float sum[Columns * Channels];
  CONVX_UNROLL
  for (int t = 0; t < Columns * Channels; ++t) sum[t] = before[t];
  CONVX_UNROLL
  for (int tap = 0; tap < Filter; ++tap) {
    const auto factor = *reinterpret_cast<const Vector<float, Channels>*>(taps + tap * Channels);
    CONVX_UNROLL
    for (int t = 0; t < Columns; ++t) {
      const int column = t + tap - First;
      if (column < 0 || column >= Sources) continue;
      CONVX_UNROLL
      for (int v = 0; v < Channels; ++v) {
        float& total = sum[t * Channels + v];
        total = multiply_add(value[column][v], factor.element[v], total);
      }
    }
  }
  CONVX_UNROLL
  for (int t = 0; t < Columns * Channels; ++t) after[t] = sum[t];
}

// The filters of a block's lanes, as float in the order in which they are used.
template <class T, int Taps, int Channels>
CONVX_DEVICE void bring_filters(float* shared_filters, const T* weight, uint32_t first_vector,
                                const RollingShape& shape) {
  auto* const words = reinterpret_cast<uint32_t*>(shared_filters);
  channels::stage_filters<T, Taps, Channels, kThreads>(words, weight, first_vector, shape.filter_words);
  block_barrier();
  LaneFilter<T, Taps, Channels> taps;
  taps.take(words + threadIdx.x * Taps);
  block_barrier();
  float* const own_filter = shared_filters + threadIdx.x * Taps * Channels;
  CONVX_UNROLL
  for (int tap = 0; tap < Taps; ++tap) {
    float* const place = own_filter + (shape.turn_filter ? Taps - 1 - tap : tap) * Channels;
    CONVX_UNROLL
    for (int v = 0; v < Channels; ++v) place[v] = taps.get(v, tap);
  }
}

// Whole: a tile is as wide as the image and its columns lie where the source's do, so that what is beside
// them is known to be zero. There are a bias and none, relu and relu6: the code of other epilogues costs
// registers.
template <class T, int Filter, int Channels, bool Whole, int Blocks>
CONVX_KERNEL(kThreads, CONVX_TIGHT_BLOCKS(Blocks))
channels_last_rolling(const T* source, const T* weight, const T* bias, T* result, RollingShape shape,
                      Finishing<T> finishing) {
  constexpr int kTaps = Filter * Filter, kSums = kColumns * Channels;
  constexpr int kFirst = Whole ? Filter / 2 : 0, kSources = Whole ? kColumns : kColumns + Filter - 1;
  // A lane's part begins an odd number of words, or of pairs, behind its neighbour's: in other banks.
  CONVX_SHARED(float, shared_filters, [kTaps * kThreads * Channels]);
  const float* const own_filter = shared_filters + threadIdx.x * kTaps * Channels;

  const uint32_t slice = shape.divide_blocks.quotient(blockIdx.x);
  const uint32_t first_thread = (blockIdx.x - slice * shape.blocks) * kThreads;
  const uint32_t unit_thread = first_thread + threadIdx.x;
  const int column_tile = shape.divide_vectors.quotient(unit_thread);
  const bool active = column_tile < shape.column_tiles;
  const int channel = static_cast<int>(unit_thread - column_tile * shape.divide_vectors.divisor) * Channels;
  const int x = column_tile * kColumns, source_x = x - shape.padding_left + kFirst;
  uint32_t source_inside = 0, result_inside = 0;  // a bit per column
  CONVX_UNROLL
  for (int j = 0; j < kSources; ++j) {
    if (active && source_x + j >= 0 && source_x + j < shape.source_width) source_inside |= 1u << j;
  }
  CONVX_UNROLL
  for (int t = 0; t < kColumns; ++t) {
    if (x + t < shape.result_width) result_inside |= 1u << t;
  }
  // In bytes. Offsets within a row have 32 bits.
  const uint32_t pixel_pitch = shape.channels * static_cast<uint32_t>(sizeof(T));
  const uint32_t source_pitch = shape.source_width * pixel_pitch,
                 result_pitch = shape.result_width * pixel_pitch;
  const uint32_t in_pixel = channel * static_cast<uint32_t>(sizeof(T));
  const char* const source_lane =
      reinterpret_cast<const char*>(source) + in_pixel + source_x * static_cast<int>(pixel_pitch);
  char* const result_lane = reinterpret_cast<char*>(result) + in_pixel + x * pixel_pitch;
  const auto locate = [&](uint32_t number) {
    return unit_of<Filter>(shape, number, source_lane, result_lane, source_pitch, result_pitch);
  };

  Lane<T, Channels> ahead[kSources];  // the next source row
  const auto row_of = [&](const Unit& unit, int i) {
    return unit.source + i * static_cast<int64_t>(source_pitch);
  };
  const auto fetch = [&](const char* line) {
    make_opaque(source_inside);  // else it becomes as many predicates, more than there are
    CONVX_UNROLL
    for (int j = 0; j < kSources; ++j) {
      ahead[j] = Lane<T, Channels>();
      if (source_inside >> j & 1) ahead[j].read(line + j * pixel_pitch);
    }
  };
  uint32_t number = slice * shape.slice_units + (slice < shape.longer_slices ? slice : shape.longer_slices);
  const uint32_t end = number + shape.slice_units + (slice < shape.longer_slices ? 1 : 0);
  Unit unit = locate(number);
  take_turn();
  const char* source_line = row_of(unit, unit.begin);
  fetch(source_line);
  bring_filters<T, kTaps, Channels>(shared_filters, weight, shape.divide_vectors.remainder(first_thread),
                                    shape);
  if (!active) return;
  float fresh[kSums];
  CONVX_UNROLL
  for (int t = 0; t < kSums; ++t) fresh[t] = bias ? widen(bias[channel + t % Channels]) : 0.0f;

  for (;;) {
    char* line = unit.result;
    const auto write = [&](float (&row)[kSums]) {
      channels::write_row<false, Channels>(row, finishing, channel, line, pixel_pitch, result_inside);
      line += result_pitch;
    };
    // Of the Filter - 1 result rows before row i. The first product of each step is added to a sum and
    // becomes the sum in the place before, and so the loop, which fits the instruction cache, moves nothing.
    float sum[Filter - 1][kSums];
    CONVX_UNROLL
    for (int k = 0; k < Filter - 1; ++k) {
      CONVX_UNROLL
      for (int t = 0; t < kSums; ++t) sum[k][t] = fresh[t];
    }
    CONVX_NO_UNROLL
    for (int i = unit.begin; i < unit.end; ++i) {
      float value[kSources][Channels];
      CONVX_UNROLL
      for (int j = 0; j < kSources; ++j) {
        CONVX_UNROLL
        for (int v = 0; v < Channels; ++v) {
          value[j][v] = ahead[j].get(v);
          make_opaque(value[j][v]);  // else it is unpacked for every row of taps
        }
      }
      if (i + 1 < unit.end) {
        source_line += source_pitch;
      } else if (number + 1 < end) {  // found out once more below: registers are few
        const Unit next = locate(number + 1);
        source_line = row_of(next, next.begin);
      }
      fetch(source_line);
      // Keeps the compiler from holding the whole filter in registers.
      asm volatile("" ::: "memory");
      float done[kSums];
      const int oldest = i - (Filter - 1);
      unrolled_steps<Filter>([&](auto slot) {
        const int k = slot;
        float (&after)[kSums] = k == 0 ? done : sum[k == 0 ? 0 : k - 1];
        if (oldest + k >= 0 && oldest + k < unit.rows) {
          add_row<Filter, kFirst, kColumns, Channels>(value,
                                                      own_filter + (Filter - 1 - k) * Filter * Channels,
                                                      k == Filter - 1 ? fresh : sum[k % (Filter - 1)], after);
        } else {  // a row that the unit has not got
          CONVX_UNROLL
          for (int t = 0; t < kSums; ++t) leave_undefined(after[t]);
        }
      });
      if (oldest >= 0) write(done);
    }
    // Result rows that end in the padding.
    CONVX_NO_UNROLL
    for (int i = unit.end; i < unit.rows + Filter - 1; ++i) {
      if (i >= Filter - 1) write(sum[0]);
      CONVX_UNROLL
      for (int k = 1; k < Filter - 1; ++k) {
        CONVX_UNROLL
        for (int t = 0; t < kSums; ++t) sum[k - 1][t] = sum[k][t];
      }
    }
    if (++number == end) break;
    unit = locate(number);
  }
}

}  // namespace convx::depthwise::channels_rolling
