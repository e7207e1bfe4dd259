// Depthwise forward and input gradient where channels are last. Lanes lie along the channels, Channels each;
// a thread owns Rows x Columns results of its channels, loads every source row once (row reuse), some rows
// ahead of its use, and walks over images and row groups with its filter at hand. Neighbouring blocks stream
// neighbouring parts of the same pixel rows, so that halo rows are found in cache.
#pragma once
#include "methods/depthwise/channels/lane.cuh"
#include "methods/depthwise/channels/shape.h"
#include "methods/depthwise/channels/write.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::channels {

constexpr int kThreads = 128;

// Forward: result o reads source s = Stride o + tap - padding. The transposed form (the input gradient of a
// strided convolution; that of stride 1 is the forward form with the filter turned) gathers, for result o,
// the source elements s with Stride s + tap - padding = o. Positions here are local to a tile whose first
// result o satisfies (o + padding) % Stride == 0 in the transposed form.
template <int Filter, int Stride, bool Transposed>
struct TileAxis {
  static_assert((Filter - 1) % Stride == 0, "odd filters");
  // Source elements that a tile of `results` meets.
  CONVX_DEVICE static constexpr int sources(int results) {
    return Transposed ? (results + Filter - 2) / Stride + 1 : Stride * (results - 1) + Filter;
  }
  // The tap that joins them; outside [0, Filter) there is none.
  CONVX_DEVICE static constexpr int tap(int source, int result) {
    return Transposed ? result - Stride * source + Filter - 1 : source - Stride * result;
  }
  CONVX_DEVICE static constexpr bool meets(int source, int result) {
    return tap(source, result) >= 0 && tap(source, result) < Filter;
  }
  // The source element that a tap brings to a result, and whether there is one.
  CONVX_DEVICE static constexpr int source(int tap, int result) {
    return Transposed ? (result + Filter - 1 - tap) / Stride : Stride * result + tap;
  }
  CONVX_DEVICE static constexpr bool joins(int tap, int result) {
    return !Transposed || (result + Filter - 1 - tap) % Stride == 0;
  }
  // The last source element that a result needs.
  CONVX_DEVICE static constexpr int last_source(int result) {
    return Transposed ? (result + Filter - 1) / Stride : Stride * result + Filter - 1;
  }
};

// Where the rows of a unit lie, from a lane's first source and result column on.
struct Unit {
  const char* source;
  char* result;
  int source_y, y;
};

template <int Rows, int Filter, int Stride, bool Transposed>
CONVX_DEVICE Unit unit_of(const ChannelsShape& shape, uint32_t number, const char* source_lane,
                          char* result_lane, uint32_t source_pitch, uint32_t result_pitch) {
  const uint32_t image = shape.divide_row_tiles.quotient(number);
  Unit unit;
  unit.y = static_cast<int>(number - image * shape.row_tiles) * Rows -
           (Transposed ? shape.padding_top % Stride : 0);
  unit.source_y = Transposed ? (unit.y + shape.padding_top) / Stride - (Filter - 1) / Stride
                             : unit.y * Stride - shape.padding_top;
  const int source_line = static_cast<int>(image) * shape.source_height + unit.source_y;
  const int result_line = static_cast<int>(image) * shape.result_height + unit.y;
  unit.source = source_lane + source_line * static_cast<int64_t>(source_pitch);
  unit.result = result_lane + result_line * static_cast<int64_t>(result_pitch);
  return unit;
}

// Keeps a lane's filter, turned or not: in registers, or in its words of shared memory.
template <bool Resident, class T, int Taps, int Kept, int Channels>
CONVX_DEVICE void keep_taps(const LaneFilter<T, Taps, Channels>& taps, bool turn,
                            float (&filter)[Kept][Channels], uint32_t* own_filter) {
  CONVX_UNROLL
  for (int tap = 0; tap < Taps; ++tap) {
    if constexpr (Resident) {
      CONVX_UNROLL
      for (int v = 0; v < Channels; ++v) {
        // Two named values: a choice between array elements would keep the array in memory.
        const float forward = taps.get(v, tap), turned = taps.get(v, Taps - 1 - tap);
        filter[tap][v] = turn ? float(turned) : float(forward);
      }
    } else {
      own_filter[turn ? Taps - 1 - tap : tap] = taps.packed(tap);
    }
  }
}

// Adds what column j of source row i brings to result row o, the filter in registers.
template <class Axis, int Filter, int Columns, int Taps, int Channels>
CONVX_DEVICE void add_column(const float (&value)[Channels], const float (&filter)[Taps][Channels], int i,
                             int j, int o, float (&sum)[Columns * Channels]) {
  if (Axis::meets(i, o)) {
    CONVX_UNROLL
    for (int t = 0; t < Columns; ++t) {
      if (!Axis::meets(j, t)) continue;
      const int tap = Axis::tap(i, o) * Filter + Axis::tap(j, t);
      CONVX_UNROLL
      for (int v = 0; v < Channels; ++v) {
        float& total = sum[t * Channels + v];
        total = multiply_add(value[v], filter[tap][v], total);
      }
    }
  }
}

// Adds what source row i brings to a tile's sums, the filter in the lane's words of shared memory.
template <class T, class Axis, int Filter, int Columns, int Rows, int Channels, class Pixel,
          int SourceColumns>
CONVX_DEVICE void add_row(const Pixel (&row)[SourceColumns], const uint32_t* own_filter, int i,
                          float (&sum)[Rows][Columns * Channels]) {
  float value[SourceColumns][Channels];
  CONVX_UNROLL
  for (int j = 0; j < SourceColumns; ++j) {
    CONVX_UNROLL
    for (int v = 0; v < Channels; ++v) value[j][v] = row[j].get(v);
  }
  unrolled_steps<Rows>([&](auto result_row) {
    const int o = result_row;
    if (Axis::meets(i, o)) {
      CONVX_UNROLL
      for (int tap = 0; tap < Filter; ++tap) {
        const uint32_t word = own_filter[Axis::tap(i, o) * Filter + tap];
        CONVX_UNROLL
        for (int v = 0; v < Channels; ++v) {
          const float factor = unpack<T>(word, v);
          CONVX_UNROLL
          for (int t = 0; t < Columns; ++t) {
            if (!Axis::joins(tap, t)) continue;
            float& total = sum[o][t * Channels + v];
            total = multiply_add(value[Axis::source(tap, t)][v], factor, total);
          }
        }
      }
    }
  });
}

// Resident filters live in registers, others stay in shared memory, where each thread has Filter * Filter
// words of its own: an odd number, so that a tap's lie in different banks. Staged ones are copied to shared
// memory by the whole block first.
// Depth is the number of source rows in flight.
template <class T, int Filter, int Stride, bool Transposed, int Channels, int Columns, int Rows, int Depth,
          bool Resident, bool Staged, int Blocks, bool AnyEpilogue>
CONVX_KERNEL(kThreads, CONVX_TIGHT_BLOCKS(Blocks))
channels_last(const T* source, const T* weight, const T* bias, T* result, ChannelsShape shape,
              Finishing<T> finishing) {
  using Axis = TileAxis<Filter, Stride, Transposed>;
  using Pixel = Lane<T, Channels>;
  constexpr int kTaps = Filter * Filter;
  constexpr int kSourceRows = Axis::sources(Rows), kSourceColumns = Axis::sources(Columns);
  constexpr int kAhead = Depth < kSourceRows ? Depth : kSourceRows;
  constexpr int kRing = Depth < kSourceRows ? Depth + 1 : kSourceRows;
  // The next unit's first rows can be fetched during the last ones of this, for they meet the same slots.
  constexpr bool kAcross = Depth < kSourceRows && kSourceRows % kRing == 0;
  CONVX_SHARED(uint32_t, shared_filters, [Resident && !Staged ? 1 : kTaps * kThreads]);
  uint32_t* const own_filter = shared_filters + threadIdx.x * kTaps;

  const uint32_t slice = shape.divide_blocks.quotient(blockIdx.x);
  const uint32_t first_thread = (blockIdx.x - slice * shape.blocks) * kThreads;
  const uint32_t unit_thread = first_thread + threadIdx.x;
  const int column_tile = shape.divide_vectors.quotient(unit_thread);
  const bool active = column_tile < shape.column_tiles;
  if (!Staged && !active) return;  // else they help to stage filters
  const int channel = static_cast<int>(unit_thread - column_tile * shape.divide_vectors.divisor) * Channels;

  // In the transposed form a tile begins where result + padding is a multiple of the stride.
  const int x = column_tile * Columns - (Transposed ? shape.padding_left % Stride : 0);
  const int source_x = Transposed ? (x + shape.padding_left) / Stride - (Filter - 1) / Stride
                                  : x * Stride - shape.padding_left;
  uint32_t source_inside = 0, result_inside = 0;  // a bit per column
  CONVX_UNROLL
  for (int j = 0; j < kSourceColumns; ++j) {
    if (active && source_x + j >= 0 && source_x + j < shape.source_width) source_inside |= 1u << j;
  }
  CONVX_UNROLL
  for (int t = 0; t < Columns; ++t) {
    if (x + t >= 0 && x + t < shape.result_width) result_inside |= 1u << t;
  }
  // In bytes. Offsets within a tile have 32 bits, without a sign, which would take registers to extend: a row
  // is shorter than 2^28 bytes.
  static_assert(kSourceRows < 16 && Rows < 16, "offsets of 32 bits");
  const uint32_t pixel_pitch = shape.channels * static_cast<uint32_t>(sizeof(T));
  const uint32_t source_pitch = shape.source_width * pixel_pitch,
                 result_pitch = shape.result_width * pixel_pitch;
  const char* const source_lane =
      reinterpret_cast<const char*>(source + channel) + source_x * static_cast<int>(pixel_pitch);
  char* const result_lane = reinterpret_cast<char*>(result + channel) + x * static_cast<int>(pixel_pitch);

  const auto locate = [&](uint32_t number) {
    return unit_of<Rows, Filter, Stride, Transposed>(shape, number, source_lane, result_lane, source_pitch,
                                                     result_pitch);
  };
  // Slot i % kRing holds source row i.
  Pixel rows[kRing][kSourceColumns];
  const auto fetch = [&](const Unit& unit, int i, Pixel* row) {
    const char* const line = unit.source + i * source_pitch;
    const uint32_t inside =
        static_cast<uint32_t>(unit.source_y + i) < static_cast<uint32_t>(shape.source_height) ? source_inside
                                                                                              : 0;
    CONVX_UNROLL
    for (int j = 0; j < kSourceColumns; ++j) {
      row[j] = Pixel();
      if (inside >> j & 1) row[j].read(line + j * pixel_pitch);
    }
  };

  uint32_t number = slice * shape.slice_units + (slice < shape.longer_slices ? slice : shape.longer_slices);
  const uint32_t end = number + shape.slice_units + (slice < shape.longer_slices ? 1 : 0);
  Unit unit = locate(number);
  take_turn();
  unrolled_steps<kAhead>([&](auto source_row) {
    const int i = source_row;
    fetch(unit, i, rows[i]);
  });

  // Behind the first rows' loads, with which they are in flight.
  float filter[Resident ? kTaps : 1][Channels];
  {
    LaneFilter<T, kTaps, Channels> taps;
    if constexpr (Staged) {
      stage_filters<T, kTaps, Channels, kThreads>(
          shared_filters, weight, shape.divide_vectors.remainder(first_thread), shape.filter_words);
      block_barrier();
      if (!active) return;
      taps.take(own_filter);
    } else {
      taps.read(weight + channel * kTaps);
    }
    keep_taps<Resident>(taps, shape.turn_filter, filter, own_filter);
  }
  float offset[Channels];
  CONVX_UNROLL
  for (int v = 0; v < Channels; ++v) offset[v] = bias ? widen(bias[channel + v]) : 0.0f;

  for (;;) {
    Unit next = unit;
    const bool last = number + 1 == end;
    // Everything that depends on the row is known at compile time: sums live in registers only while they
    // grow.
    float sum[Rows][Columns * Channels];
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) {
      CONVX_UNROLL
      for (int t = 0; t < Columns * Channels; ++t) sum[o][t] = offset[t % Channels];
    }
    unrolled_steps<kSourceRows>([&](auto source_row) {
      const int i = source_row;
      if (i + kAhead < kSourceRows) {
        fetch(unit, i + kAhead, rows[(i + kAhead) % kRing]);
      } else if (kAcross) {
        if (i + kAhead == kSourceRows) next = locate(last ? number : number + 1);
        if (!last) fetch(next, i + kAhead - kSourceRows, rows[(i + kAhead) % kRing]);
      }
      const Pixel(&row)[kSourceColumns] = rows[i % kRing];
      if constexpr (Resident) {
        unrolled_steps<kSourceColumns>([&](auto source_column) {
          const int j = source_column;
          float value[Channels];
          CONVX_UNROLL
          for (int v = 0; v < Channels; ++v) value[v] = row[j].get(v);
          unrolled_steps<Rows>([&](auto result_row) {
            const int o = result_row;
            add_column<Axis, Filter, Columns>(value, filter, i, j, o, sum[o]);
          });
        });
      } else {
        // Keeps the compiler from holding the whole filter in registers after all.
        asm volatile("" ::: "memory");
        add_row<T, Axis, Filter, Columns, Rows, Channels>(row, own_filter, i, sum);
      }
      unrolled_steps<Rows>([&](auto result_row) {
        const int o = result_row;
        // Row i completes result row o.
        if (Axis::last_source(o) != i) return;
        if (unit.y + o < 0 || unit.y + o >= shape.result_height) return;
        char* const line = unit.result + o * result_pitch;
        write_row<AnyEpilogue, Channels>(sum[o], finishing, channel, line, pixel_pitch, result_inside);
      });
    });
    if (last) break;
    ++number;
    if constexpr (kAcross) {
      unit = next;
    } else {
      unit = locate(number);
      unrolled_steps<kAhead>([&](auto source_row) {
        const int i = source_row;
        fetch(unit, i, rows[i]);
      });
    }
  }
}

}  // namespace convx::depthwise::channels
