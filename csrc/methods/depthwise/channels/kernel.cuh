// Depthwise forward and input gradient where channels are last. Lanes lie along the channels, Channels each;
// a thread owns Rows x Columns results of its channels, loads every source row once (row reuse), a row ahead
// of its use, and walks over images and row groups with its filter at hand. Neighbouring blocks stream
// neighbouring parts of the same pixel rows, so that halo rows are found in cache.
#pragma once
#include "methods/epilogue.cuh"
#include "platform/platform.h"

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

struct ChannelsShape {
  int channels, source_height, source_width, result_height, result_width;
  int padding_top, padding_left;
  int column_tiles, row_tiles, slices;
  uint32_t blocks;  // of one slice
  int64_t units;    // batch * row_tiles, split evenly over the slices
  bool turn_filter;
  Activation activation;
  FastDivide divide_vectors, divide_row_tiles;  // by channels / Channels, by row_tiles
};

// Resident filters live in registers, others in shared memory, where each thread reads only its own column.
// Without AnyActivation, there are none, relu and relu6: the code of the others costs registers.
template <class T, int Filter, int Stride, bool Transposed, int Channels, int Columns, int Rows,
          bool Resident, int Blocks, bool AnyActivation>
CONVX_KERNEL(kThreads, Blocks)
channels_last(const T* source, const T* weight, const T* bias, T* result, ChannelsShape shape) {
  using A = Accumulator<T>;
  using Axis = TileAxis<Filter, Stride, Transposed>;
  using Vec = Vector<T, Channels>;
  constexpr int kTaps = Filter * Filter;
  constexpr int kSourceRows = Axis::sources(Rows), kSourceColumns = Axis::sources(Columns);
  constexpr int kRowValues = Columns * Channels;
  CONVX_SHARED(Vec, shared_filter, [Resident ? 1 : kTaps * kThreads]);
  CONVX_SHARED(A, shared_row, [AnyActivation ? kRowValues * kThreads : 1]);

  const uint32_t slice = blockIdx.x / shape.blocks;
  const uint32_t unit_thread = (blockIdx.x - slice * shape.blocks) * kThreads + threadIdx.x;
  const int column_tile = shape.divide_vectors.quotient(unit_thread);
  if (column_tile >= shape.column_tiles) return;
  const int channel = shape.divide_vectors.remainder(unit_thread) * Channels;

  A filter[Resident ? kTaps : 1][Channels];
  CONVX_UNROLL
  for (int tap = 0; tap < kTaps; ++tap) {
    Vec taps;
    CONVX_UNROLL
    for (int v = 0; v < Channels; ++v) {
      taps.element[v] = weight[int64_t(channel + v) * kTaps + (shape.turn_filter ? kTaps - 1 - tap : tap)];
      if constexpr (Resident) filter[tap][v] = widen(taps.element[v]);
    }
    if constexpr (!Resident) shared_filter[tap * kThreads + threadIdx.x] = taps;
  }
  const bool clamped = shape.activation == Activation::relu || shape.activation == Activation::relu6;
  const bool plain = shape.activation == Activation::none;

  // In the transposed form a tile begins where result + padding is a multiple of the stride.
  const int x = column_tile * Columns - (Transposed ? shape.padding_left % Stride : 0);
  const int source_x = Transposed ? (x + shape.padding_left) / Stride - (Filter - 1) / Stride
                                  : x * Stride - shape.padding_left;
  uint32_t source_inside = 0, result_inside = 0;  // a bit per column
  CONVX_UNROLL
  for (int j = 0; j < kSourceColumns; ++j) {
    if (source_x + j >= 0 && source_x + j < shape.source_width) source_inside |= 1u << j;
  }
  CONVX_UNROLL
  for (int t = 0; t < Columns; ++t) {
    if (x + t >= 0 && x + t < shape.result_width) result_inside |= 1u << t;
  }
  const int source_pitch = shape.source_width * shape.channels,
            result_pitch = shape.result_width * shape.channels;

  source += static_cast<int64_t>(source_x) * shape.channels + channel;
  result += static_cast<int64_t>(x) * shape.channels + channel;

  const uint32_t unit_begin = static_cast<uint32_t>(shape.units * slice / shape.slices);
  const uint32_t unit_end = static_cast<uint32_t>(shape.units * (slice + 1) / shape.slices);
  for (uint32_t unit = unit_begin; unit < unit_end; ++unit) {
    const uint32_t image = shape.divide_row_tiles.quotient(unit);
    const int row_tile = unit - image * shape.row_tiles;
    const int y = row_tile * Rows - (Transposed ? shape.padding_top % Stride : 0);
    const int source_y = Transposed ? (y + shape.padding_top) / Stride - (Filter - 1) / Stride
                                    : y * Stride - shape.padding_top;
    const T* const source_tile =
        source + (static_cast<int64_t>(image) * shape.source_height + source_y) * source_pitch;
    T* const result_tile = result + (static_cast<int64_t>(image) * shape.result_height + y) * result_pitch;

    // Slot i % 2 holds source row i: one is used while the next arrives.
    Vec rows[2][kSourceColumns];
    const auto fetch = [&](int i, Vec* row) {
      const T* element = source_tile + i * static_cast<int64_t>(source_pitch);
      const uint32_t inside = static_cast<uint32_t>(source_y + i) < static_cast<uint32_t>(shape.source_height)
                                  ? source_inside
                                  : 0;
      CONVX_UNROLL
      for (int j = 0; j < kSourceColumns; ++j) {
        row[j] = Vec{};
        if (inside >> j & 1) row[j] = load<T, Channels>(element);
        element += shape.channels;
      }
    };
    fetch(0, rows[0]);

    A sum[Rows][Columns][Channels];
    CONVX_UNROLL
    for (int o = 0; o < Rows; ++o) {
      CONVX_UNROLL
      for (int t = 0; t < Columns; ++t) {
        CONVX_UNROLL
        for (int v = 0; v < Channels; ++v) sum[o][t][v] = 0;
      }
    }
    // Everything that depends on the row is known at compile time: sums live in registers only while they
    // grow.
    unrolled_steps<kSourceRows>([&](auto source_row) {
      const int i = source_row;
      if (i + 1 < kSourceRows) fetch(i + 1, rows[(i + 1) % 2]);
      if constexpr (Resident) {
        unrolled_steps<kSourceColumns>([&](auto source_column) {
          const int j = source_column;
          A value[Channels];
          CONVX_UNROLL
          for (int v = 0; v < Channels; ++v) value[v] = widen(rows[i % 2][j].element[v]);
          unrolled_steps<Rows>([&](auto result_row) {
            const int o = result_row;
            if (Axis::meets(i, o)) {
              CONVX_UNROLL
              for (int t = 0; t < Columns; ++t) {
                if (!Axis::meets(j, t)) continue;
                const int tap = Axis::tap(i, o) * Filter + Axis::tap(j, t);
                CONVX_UNROLL
                for (int v = 0; v < Channels; ++v) {
                  sum[o][t][v] = multiply_add(value[v], filter[tap][v], sum[o][t][v]);
                }
              }
            }
          });
        });
      } else {
        // Keeps the compiler from holding the whole filter in registers after all.
        asm volatile("" ::: "memory");
        A value[kSourceColumns][Channels];
        CONVX_UNROLL
        for (int j = 0; j < kSourceColumns; ++j) {
          CONVX_UNROLL
          for (int v = 0; v < Channels; ++v) value[j][v] = widen(rows[i % 2][j].element[v]);
        }
        unrolled_steps<Rows>([&](auto result_row) {
          const int o = result_row;
          if (Axis::meets(i, o)) {
            CONVX_UNROLL
            for (int tap = 0; tap < Filter; ++tap) {
              const Vec packed = shared_filter[(Axis::tap(i, o) * Filter + tap) * kThreads + threadIdx.x];
              A taps[Channels];
              CONVX_UNROLL
              for (int v = 0; v < Channels; ++v) taps[v] = widen(packed.element[v]);
              CONVX_UNROLL
              for (int t = 0; t < Columns; ++t) {
                if (!Axis::joins(tap, t)) continue;
                CONVX_UNROLL
                for (int v = 0; v < Channels; ++v) {
                  sum[o][t][v] = multiply_add(value[Axis::source(tap, t)][v], taps[v], sum[o][t][v]);
                }
              }
            }
          }
        });
      }
      unrolled_steps<Rows>([&](auto result_row) {
        const int o = result_row;
        // Row i completes result row o.
        if (Axis::last_source(o) != i) return;
        if (y + o < 0 || y + o >= shape.result_height) return;
        // Loaded again for every row: registers are short.
        A offset[Channels];
        CONVX_UNROLL
        for (int v = 0; v < Channels; ++v) offset[v] = bias ? A(widen(bias[channel + v])) : A(0);
        T* line = result_tile + o * static_cast<int64_t>(result_pitch);
        if (!AnyActivation || plain || clamped) {
          CONVX_UNROLL
          for (int t = 0; t < Columns; ++t) {
            Vec values;
            CONVX_UNROLL
            for (int v = 0; v < Channels; ++v) {
              A value = sum[o][t][v] + offset[v];
              if (clamped) {
                value = value < A(0) ? A(0) : value;
                if (shape.activation == Activation::relu6) value = value > A(6) ? A(6) : value;
              }
              values.element[v] = narrow<T>(value);
            }
            if (result_inside >> t & 1) store<T, Channels>(line, values);
            line += shape.channels;
          }
        } else if constexpr (AnyActivation) {
          // Long activations in a loop, through this thread's own column of shared memory: their code would
          // otherwise be repeated for every result of the tile.
          CONVX_UNROLL
          for (int t = 0; t < Columns; ++t) {
            CONVX_UNROLL
            for (int v = 0; v < Channels; ++v) {
              shared_row[(t * Channels + v) * kThreads + threadIdx.x] = sum[o][t][v] + offset[v];
            }
          }
          CONVX_NO_UNROLL
          for (int t = 0; t < Columns; ++t) {
            Vec values;
            CONVX_UNROLL
            for (int v = 0; v < Channels; ++v) {
              const A value = shared_row[(t * Channels + v) * kThreads + threadIdx.x];
              values.element[v] = narrow<T>(activate(value, shape.activation));
            }
            if (result_inside >> t & 1) store<T, Channels>(line, values);
            line += shape.channels;
          }
        }
      });
    });
  }
}

}  // namespace convx::depthwise::channels
