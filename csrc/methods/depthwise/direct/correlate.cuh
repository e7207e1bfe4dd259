// Forward and input gradient of any depthwise problem, as sums of unit-stride correlations.
//
// Forward with stride s and dilation d: with g = gcd(s, d), taps s / g apart read one sub-lattice of the
// input, x[s (o + (d / g) j) + origin], so that each of the s / g phases of the filter is a correlation of
// stride 1 whose source rows are shared by outputs d / g apart. The input gradient at h = s u + residue is
// one such correlation for each residue, with the taps that meet it, reversed. A thread owns Rows x Columns
// results spaced d / g apart and loads each source row once (row reuse: Liu et al. 2024, Algorithm 1).
#pragma once
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::direct {

// The taps of one phase along one axis: filter index first + step j, source index
// source_step (u + spacing j) + origin.
struct Phase {
  int taps, first, step, origin;
};

struct Axis {
  int source_size, result_size;
  int filter, dilation, padding;  // padding before the first element
  int stride;
  int source_step, result_step;  // forward: stride, 1; input gradient: 1, stride
  int spacing;                   // dilation / gcd(stride, dilation)
  int period;                    // stride / gcd(stride, dilation)
  int phases;                    // phases that one result sums over
  int tiles;
  FastDivide divide_spacing;

  CONVX_DEVICE Phase forward_phase(int phase) const {
    return {(filter - phase + period - 1) / period, phase, period, dilation * phase - padding};
  }
  CONVX_DEVICE Phase gradient_phase(int residue) const {
    const int target = residue + padding;
    const int end = period < filter ? period : filter;
    int first = 0;
    while (first < end && (target - dilation * first) % stride != 0) ++first;
    const int taps = first < end ? (filter - first + period - 1) / period : 0;
    return {taps, first + period * (taps - 1), -period,
            (target - dilation * first) / stride - spacing * (taps - 1)};
  }
  // The first of the results, spacing apart, of a tile of `size`.
  CONVX_DEVICE int tile_begin(int tile, int size) const {
    const int group = static_cast<int>(divide_spacing.quotient(tile));
    return group * spacing * size + tile - group * spacing;
  }
};

struct CorrelateShape {
  Axis rows, columns;
  int64_t batch;
  int source_channels, result_channels;
  int64_t source_image, source_row, result_image, result_row;  // pitches in elements
  int64_t source_plane, result_plane;                          // from channel to channel
  int source_column, result_column;                            // from column to column
  int multiplier;  // forward: results that read one source channel
  int sources;     // input gradient: source channels that one result channel sums over
  bool channels_last;
  // How a block's threads are laid out, and the part of the filter held in shared memory at a time.
  int block_tiles, block_channels, block_images, window_rows, window_chunks;
  FastDivide divide_inner, divide_outer;                                  // of a thread's index
  FastDivide divide_tile_blocks, divide_residues, divide_channel_blocks;  // of a block's index
  FastDivide divide_tile_columns, divide_residue_columns, divide_block_channels, divide_window_chunks;

  template <bool Gradient>
  CONVX_DEVICE void keep_per_lane() {
    convx::keep_per_lane(batch);
    convx::keep_per_lane(source_image);
    convx::keep_per_lane(source_row);
    convx::keep_per_lane(source_plane);
    convx::keep_per_lane(source_column);
    convx::keep_per_lane(result_image);
    convx::keep_per_lane(result_row);
    convx::keep_per_lane(result_plane);
    convx::keep_per_lane(result_column);
    convx::keep_per_lane(result_channels);
    convx::keep_per_lane(multiplier);
    convx::keep_per_lane(block_tiles);
    convx::keep_per_lane(block_images);
    for (Axis* axis : {&rows, &columns}) {
      convx::keep_per_lane(axis->source_size);
      convx::keep_per_lane(axis->result_size);
      convx::keep_per_lane(axis->result_step);
      convx::keep_per_lane(axis->tiles);
      convx::keep_per_lane(axis->spacing);
      convx::keep_per_lane(axis->padding);
      convx::keep_per_lane(axis->dilation);
      if constexpr (Gradient) convx::keep_per_lane(axis->stride);
    }
    for (FastDivide* divide : {&divide_inner, &divide_outer, &divide_tile_columns, &divide_block_channels,
                               &divide_window_chunks, &rows.divide_spacing, &columns.divide_spacing}) {
      convx::keep_per_lane(divide->divisor);
      convx::keep_per_lane(divide->multiplier);
      convx::keep_per_lane(divide->shift);
    }
  }
};

// Where a thread's tile lies.
struct Place {
  int channel_begin, channel;  // the block's first, and the thread's
  int residue_row, residue_column;
  int u_row, u_column;  // of the tile's first result, on the lattice
  int64_t image;
  bool active;
};

template <bool Gradient, int Rows, int Columns>
CONVX_DEVICE Place place_of(const CorrelateShape& shape) {
  uint32_t block = blockIdx.x;
  const uint32_t tile_block = shape.divide_tile_blocks.remainder(block);
  block = shape.divide_tile_blocks.quotient(block);
  const uint32_t residue = shape.divide_residues.remainder(block);
  block = shape.divide_residues.quotient(block);
  const int channel_begin = shape.divide_channel_blocks.remainder(block) * shape.block_channels;
  const int64_t image_begin =
      static_cast<int64_t>(shape.divide_channel_blocks.quotient(block)) * shape.block_images;
  const int residue_row = Gradient ? shape.divide_residue_columns.quotient(residue) : 0;
  const int residue_column = Gradient ? shape.divide_residue_columns.remainder(residue) : 0;

  // Neighbouring threads take neighbouring tiles of a plane, or neighbouring channels where those are last.
  const uint32_t inner = shape.divide_inner.remainder(threadIdx.x);
  const uint32_t rest = shape.divide_inner.quotient(threadIdx.x);
  const uint32_t outer = shape.divide_outer.remainder(rest);
  const int64_t image = image_begin + shape.divide_outer.quotient(rest);
  const int local_channel = shape.channels_last ? inner : outer;
  const int channel = channel_begin + local_channel;
  const int tile = tile_block * shape.block_tiles + (shape.channels_last ? outer : inner);
  const bool active = image - image_begin < shape.block_images && image < shape.batch &&
                      channel < shape.result_channels && tile < shape.rows.tiles * shape.columns.tiles;
  const int tile_row = shape.divide_tile_columns.quotient(tile);
  const int u_row = shape.rows.tile_begin(tile_row, Rows);
  const int u_column = shape.columns.tile_begin(tile - tile_row * shape.columns.tiles, Columns);
  return {channel_begin, channel, residue_row, residue_column, u_row, u_column, image, active};
}

constexpr int kChunk = 4;  // filter taps along a row that are fetched at once

// The window of the filter [row_begin, +window_rows) x [column_begin, +kChunk window_chunks) of one phase for
// the block's channels, as [row][chunk][channel][tap]. lead taps in front of the phase's first are left out.
template <class T>
CONVX_DEVICE void stage_filter(Accumulator<T>* filter, const T* weight, const CorrelateShape& shape,
                               const Phase& row, const Phase& column, int rows, int row_begin,
                               int column_begin, int lead, int channel_begin, int source) {
  const int count = rows * shape.window_chunks * shape.block_channels * kChunk;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int tap = i % kChunk;
    const int chunk_row = shape.divide_block_channels.quotient(i / kChunk);
    const int channel = channel_begin + i / kChunk - chunk_row * shape.block_channels;
    const int window_row = shape.divide_window_chunks.quotient(chunk_row);
    const int chunk = chunk_row - window_row * shape.window_chunks;
    const int tap_column = column_begin + chunk * kChunk + tap - lead;
    Accumulator<T> value = 0;
    if (tap_column >= 0 && tap_column < column.taps && channel < shape.result_channels) {
      const int64_t filter_index = static_cast<int64_t>(channel) * shape.sources + source;
      const int tap_row = row_begin + window_row;
      value = widen(
          weight[(filter_index * shape.rows.filter + row.first + row.step * tap_row) * shape.columns.filter +
                 column.first + column.step * tap_column]);
    }
    filter[i] = value;
  }
}

// Adds kChunk taps' products to a row of results; window[c + t] is what tap t brings to result c.
template <int Columns, class A>
CONVX_DEVICE void add_taps(const A (&window)[Columns + kChunk], const bool (&used)[kChunk],
                           const Vector<A, kChunk>& taps, A (&sum)[Columns]) {
  CONVX_UNROLL
  for (int t = 0; t < kChunk; ++t) {
    // Taps outside the filter are skipped, not multiplied by zero: the source may hold
    // infinities.
    if (!used[t]) continue;
    CONVX_UNROLL
    for (int c = 0; c < Columns; ++c) {
      sum[c] = multiply_add(window[c + t], taps.element[t], sum[c]);
    }
  }
}

// Wide: the source's columns are contiguous and its rows start at multiples of four elements, so that four
// columns are one load.
template <class T, bool Gradient, int Rows, int Columns, bool Wide>
CONVX_KERNEL(256, 1)
correlate(const T* source, const T* weight, const T* bias, T* result, CorrelateShape shape,
          Finishing<T> finishing) {
  static_assert(!Wide || Columns == 4, "a wide load is four columns");
  using A = Accumulator<T>;
  CONVX_DYNAMIC_SHARED(shared);
  A* const filter = reinterpret_cast<A*>(shared);

  shape.template keep_per_lane<Gradient>();
  keep_per_lane(weight);
  keep_per_lane(bias);
  keep_per_lane(result);
  const Place place = place_of<Gradient, Rows, Columns>(shape);
  const int channel_begin = place.channel_begin, channel = place.channel;
  const int residue_row = place.residue_row, residue_column = place.residue_column;
  const int u_row = place.u_row, u_column = place.u_column, local_channel = channel - channel_begin;
  const int64_t image = place.image;
  const bool active = place.active;

  take_turn();
  A sum[Rows][Columns];
  CONVX_UNROLL
  for (int o = 0; o < Rows; ++o) {
    CONVX_UNROLL
    for (int c = 0; c < Columns; ++c) sum[o][c] = 0;
  }

  const int source_step_row = Gradient ? 1 : shape.rows.source_step;
  const int source_step_column = Gradient ? 1 : shape.columns.source_step;
  const int source_width = shape.columns.source_size;
  const int tap_pitch = source_step_column * shape.columns.spacing;
  const int sources = Gradient ? shape.sources : 1;
  for (int s = 0; s < sources; ++s) {
    const int source_channel = Gradient ? channel * shape.sources + s : channel / shape.multiplier;
    const T* const plane =
        source + (active ? image * shape.source_image + source_channel * shape.source_plane : 0);
    for (int phase = 0; phase < shape.rows.phases * shape.columns.phases; ++phase) {
      const int phase_row = phase / shape.columns.phases;
      const Phase row =
          Gradient ? shape.rows.gradient_phase(residue_row) : shape.rows.forward_phase(phase_row);
      const Phase column = Gradient ? shape.columns.gradient_phase(residue_column)
                                    : shape.columns.forward_phase(phase - phase_row * shape.columns.phases);
      if (column.taps <= 0) continue;
      // Wide windows begin at an aligned column: lead taps of weight zero, which are skipped, come first.
      const int lead = Wide ? column.origin & (kChunk - 1) : 0;
      const int taps = column.taps + lead;
      for (int row_begin = 0; row_begin < row.taps; row_begin += shape.window_rows) {
        const int rows = row.taps - row_begin < shape.window_rows ? row.taps - row_begin : shape.window_rows;
        for (int column_begin = 0; column_begin < taps; column_begin += shape.window_chunks * kChunk) {
          block_barrier();
          stage_filter(filter, weight, shape, row, column, rows, row_begin, column_begin, lead, channel_begin,
                       s);
          block_barrier();
          if (!active) continue;
          const int column_end = taps - column_begin < shape.window_chunks * kChunk
                                     ? taps
                                     : column_begin + shape.window_chunks * kChunk;
          const int x_begin =
              source_step_column * (u_column + shape.columns.spacing * column_begin) + column.origin - lead;
          for (int i = 0; i < rows + Rows - 1; ++i) {
            const int y = source_step_row * (u_row + shape.rows.spacing * (row_begin + i)) + row.origin;
            if (y < 0 || y >= shape.rows.source_size) continue;
            const T* const line = plane + y * shape.source_row;
            const auto element = [&](int x) -> A {
              return x >= 0 && x < source_width
                         ? A(widen(load<T, 1>(line + int64_t(x) * shape.source_column).element[0]))
                         : A(0);
            };
            // window[v] is source column x_begin + tap_pitch (column_of_chunk + v).
            A window[Columns + kChunk];
            const auto fetch_wide = [&](int x, int at) {
              Vector<T, 4> four{};
              if (x >= 0 && x < source_width) four = load<T, 4>(line + x);
              CONVX_UNROLL
              for (int v = 0; v < 4; ++v) window[at + v] = widen(four.element[v]);
            };
            int x = x_begin;
            if constexpr (Wide) {
              fetch_wide(x, 0);
            } else {
              CONVX_UNROLL
              for (int v = 0; v < Columns - 1; ++v) window[v] = element(x + v * tap_pitch);
            }
            const A* row_filter =
                filter + (i * shape.window_chunks * shape.block_channels + local_channel) * kChunk;
            const int row_filter_pitch = shape.window_chunks * shape.block_channels * kChunk;
            for (int tap_begin = column_begin; tap_begin < column_end; tap_begin += kChunk) {
              bool used[kChunk];
              CONVX_UNROLL
              for (int t = 0; t < kChunk; ++t) used[t] = tap_begin + t >= lead && tap_begin + t < column_end;
              if constexpr (Wide) {
                fetch_wide(x + 4, 4);
              } else {
                CONVX_UNROLL
                for (int t = 0; t < kChunk; ++t) {
                  window[Columns - 1 + t] = used[t] ? element(x + (Columns - 1 + t) * tap_pitch) : A(0);
                }
              }
              CONVX_UNROLL
              for (int o = 0; o < Rows; ++o) {
                if (i < o || i - o >= rows) continue;
                const Vector<A, kChunk> taps_of_row =
                    *reinterpret_cast<const Vector<A, kChunk>*>(row_filter - o * row_filter_pitch);
                add_taps<Columns>(window, used, taps_of_row, sum[o]);
              }
              constexpr int kKept = Wide ? 4 : Columns - 1;
              CONVX_UNROLL
              for (int v = 0; v < kKept; ++v) window[v] = window[v + kChunk];
              x += kChunk * tap_pitch;
              row_filter += shape.block_channels * kChunk;
            }
          }
        }
      }
    }
  }
  if (!active) return;

  const A offset = bias_of(bias, channel);
  T* const result_plane = result + image * shape.result_image + channel * shape.result_plane;
  CONVX_UNROLL
  for (int o = 0; o < Rows; ++o) {
    const int y = shape.rows.result_step * (u_row + shape.rows.spacing * o) + residue_row;
    if (y >= shape.rows.result_size) continue;
    T* const line = result_plane + y * shape.result_row;
    const auto column = [&](int c) {
      return shape.columns.result_step * (u_column + shape.columns.spacing * c) + residue_column;
    };
    CONVX_UNROLL
    for (int c = 0; c < Columns; ++c) sum[o][c] += offset;
    finish(
        sum[o], finishing, [&](int) { return channel; },
        [&](T(&residuals)[Columns]) {
          CONVX_UNROLL
          for (int c = 0; c < Columns; ++c) {
            const T* const place = line + int64_t(column(c)) * shape.result_column;
            residuals[c] = T{};
            if (column(c) < shape.columns.result_size) residuals[c] = *residual_of(finishing, place);
          }
        });
    Vector<T, Columns> values;
    CONVX_UNROLL
    for (int c = 0; c < Columns; ++c) values.element[c] = narrow<T>(sum[o][c]);
    if constexpr (Wide) {
      // result_size % 4 == 0 and consecutive results: a tile is whole.
      if (shape.columns.result_step == 1 && shape.columns.result_size % 4 == 0) {
        store<T, 4>(line + u_column, values);
        continue;
      }
    }
    CONVX_UNROLL
    for (int c = 0; c < Columns; ++c) {
      const int x = column(c);
      if (x < shape.columns.result_size) line[int64_t(x) * shape.result_column] = values.element[c];
    }
  }
}

}  // namespace convx::depthwise::direct
