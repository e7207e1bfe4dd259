// Staging and multiplying of a window of taps, for any filter, stride, dilation and padding. The reduction
// runs over a list of (channel, tap) pairs: a table in shared memory says where each pair's source values lie
// from a strip's beginning, so that one loop serves them all.
#pragma once
#include "methods/cuconv/tile/arguments.cuh"

namespace convx::cuconv::tile {

template <int Lanes, class T, int Filters, int Pixels>
class WindowFeed {
 public:
  using A = Accumulator<T>;
  static constexpr bool kFlat = false;
  static constexpr int kBlockFilters = kFilterLanes * Filters, kBlockPixels = Lanes / kFilterLanes * Pixels;

  CONVX_DEVICE WindowFeed(const Arguments<T>& arguments, int* tables, int in_warp)
      : a(arguments),
        task(task_of(arguments, kBlockFilters, kBlockPixels, kFlat)),
        lane(in_warp),
        strip(in_warp / kFilterLanes) {
    const int padded = (a.reduction + 3) / 4 * 4;
    tap_offsets = tables;
    weight_offsets = tables + padded;
    positions = tables + 2 * padded;
    keep_per_lane(weight_pitch);
    keep_per_lane(channel_pitch);
    keep_per_lane(source_plane);
    keep_per_lane(filter_elements);
    keep_per_lane(source);
    keep_per_lane(weight);
    keep_per_lane(strip_step);
    keep_per_lane(staged);
    keep_per_lane(dilation_h);
    keep_per_lane(dilation_w);
    keep_per_lane(chunk_channels);
    keep_per_lane(all_channels);
    keep_per_lane(divide_values.divisor);
    keep_per_lane(divide_values.multiplier);
    keep_per_lane(divide_values.shift);
    keep_per_lane(filter_taps);
  }

  // Fills the tables for a window of taps; all threads of the block call it.
  CONVX_DEVICE void open(int window) {
    const int first_row = window / a.windows_across * a.rows;
    const int first_column = window % a.windows_across * a.columns;
    const int rows = min(a.rows, a.filter_height - first_row);
    const int columns = min(a.columns, a.filter_width - first_column);
    taps = rows * columns;
    keep_per_lane(taps);
    block_barrier();  // the tables of the window before are no longer read
    list_taps(first_row, first_column, columns);
    list_positions(row_origin + first_row * dilation_h, column_origin + first_column * dilation_w);
    block_barrier();
  }

  // This lane's part of a chunk's filter values and source window.
  CONVX_DEVICE void stage(A* target, int chunk) const {
    const int channel = chunk * chunk_channels, channels = min(chunk_channels, all_channels - channel);
    const T* const first = weight + channel * filter_taps;
    if (a.wide_weights) {
      stage_weight_pieces(target, first, channels * taps);
    } else {
      stage_values<Lanes>(a, first, task.filters, channels * taps, lane, weight_pitch, target,
                          [&](int place) { return weight_offsets[place]; });
    }
    A* values = target + kBlockFilters * weight_pitch;
    const T* plane = source + static_cast<int64_t>(channel) * source_plane;
    for (int c = 0; c < channels; ++c, plane += source_plane, values += channel_pitch) {
      for (int i = lane; i < staged; i += Lanes) {
        const int place = positions[i];
        stage_element<T>(values + i, plane + max(place, 0), place >= 0);
      }
    }
  }

  // Adds up a stage: four (channel, tap) pairs at a time, and the rest.
  CONVX_DEVICE void multiply(const A* stage, int chunk, A (&sums)[Filters][Pixels]) const {
    const A* const filter = stage + lane % kFilterLanes * weight_pitch;
    const A* const values = stage + kBlockFilters * weight_pitch + strip_place;
    const int count = min(chunk_channels, all_channels - chunk * chunk_channels) * taps;
    int i = 0;
    CONVX_NO_UNROLL
    for (; i + 4 <= count; i += 4) {
      const Vector<int, 4> tap = *reinterpret_cast<const Vector<int, 4>*>(tap_offsets + i);
      Vector<A, 4> factor[Filters];
      CONVX_UNROLL
      for (int k = 0; k < Filters; ++k) {
        factor[k] = *reinterpret_cast<const Vector<A, 4>*>(filter + k * kFilterLanes * weight_pitch + i);
      }
      CONVX_UNROLL
      for (int n = 0; n < 4; ++n) {
        add_product(values + tap.element[n], [&](int k) { return factor[k].element[n]; }, sums);
      }
    }
    CONVX_NO_UNROLL
    for (; i < count; ++i) {
      add_product(
          values + tap_offsets[i], [&](int k) { return filter[k * kFilterLanes * weight_pitch + i]; }, sums);
    }
  }

  const Arguments<T>& a;
  const BlockTask task;
  const int lane;

 private:
  const int strip;
  // Kept per lane, for the scalar registers of AMD GPUs are few.
  int weight_pitch = a.weight_pitch, channel_pitch = a.channel_pitch, source_plane = a.source_plane;
  int filter_taps = a.filter_height * a.filter_width, filter_elements = a.channels * filter_taps;
  int staged = a.positions, chunk_channels = a.chunk, all_channels = a.channels;
  FastDivide divide_values = a.divide_values;
  int dilation_h = a.dilation_h, dilation_w = a.dilation_w;
  int strip_step = a.rows == 1 ? 1 : a.stride_h;  // staged rows from a strip to the one below
  int strip_place =
      strip % a.across * Pixels + strip / a.across * strip_step * a.pitch;  // in a staged channel
  const T* source = a.source + task.first_channel * source_plane;
  const T* weight = a.weight + task.first_filter * filter_elements;
  int* tap_offsets;     // by (channel, tap) of a chunk: where its values lie from the strip's beginning
  int* weight_offsets;  // by the same: where it lies in a filter from the chunk's first channel
  int* positions;       // by staged element of a channel: its place in the source plane, -1 for padding
  // Of the tile's first result: the source pixel that its first tap meets.
  int row_origin = task.first_row * a.stride_h - a.top,
      column_origin = task.first_column * a.stride_w - a.left;
  int taps = 0;  // of the window

  CONVX_DEVICE void list_taps(int first_row, int first_column, int columns) const {
    CONVX_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < a.chunk * taps; i += static_cast<int>(blockDim.x)) {
      const int channel = i / taps, tap = i - channel * taps;
      const int row = tap / columns, column = tap - row * columns;
      weight_offsets[i] = channel * filter_taps + (first_row + row) * a.filter_width + first_column + column;
      const int across = column * dilation_w, quotient = across / a.stride_w;
      tap_offsets[i] = channel * channel_pitch + row * dilation_h * a.pitch +
                       (across - quotient * a.stride_w) * a.residue_pitch + quotient;
    }
  }

  CONVX_DEVICE void list_positions(int first_row, int first_column) const {
    CONVX_NO_UNROLL
    for (int i = static_cast<int>(threadIdx.x); i < a.positions; i += static_cast<int>(blockDim.x)) {
      const int line = i / a.pitch, place = i - line * a.pitch, residue = place / a.residue_pitch;
      const int row = first_row + line * a.row_step;
      const int column = first_column + residue + (place - residue * a.residue_pitch) * a.column_step;
      const bool inside =
          row >= 0 && row < a.source_height && column >= 0 && column < a.source_width && residue < a.residues;
      positions[i] = inside ? row * a.source_width + column : -1;
    }
  }

  CONVX_DEVICE void stage_weight_pieces(A* target, const T* first, int count) const {
    const int pieces = static_cast<int>(divide_values.divisor);
    for (int i = lane; i < task.filters * pieces; i += Lanes) {
      const int filter = static_cast<int>(divide_values.quotient(i)), place = 4 * (i - filter * pieces);
      if (place < count) {
        stage_piece<T>(target + filter * weight_pitch + place, first + filter * filter_elements + place, 4);
      }
    }
  }
};

}  // namespace convx::cuconv::tile
