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
  }

  // Fills the tables for a window of taps; all threads of the block call it.
  CONVX_DEVICE void open(int window) {
    const int first_row = window / a.windows_across * a.rows;
    const int first_column = window % a.windows_across * a.columns;
    const int rows = min(a.rows, a.filter_height - first_row);
    const int columns = min(a.columns, a.filter_width - first_column);
    taps = rows * columns;
    block_barrier();  // the tables of the window before are no longer read
    list_taps(first_row, first_column, columns);
    list_positions(task.first_row * a.stride_h - a.top + first_row * a.dilation_h,
                   task.first_column * a.stride_w - a.left + first_column * a.dilation_w);
    block_barrier();
  }

  // This lane's part of a chunk's filter values and source window.
  CONVX_DEVICE void stage(A* target, int chunk) const {
    const int channel = chunk * a.chunk, channels = min(a.chunk, a.channels - channel);
    const int filter_taps = a.filter_height * a.filter_width;
    const T* const first = a.weight + (task.first_filter * a.channels + channel) * filter_taps;
    if (a.wide_weights) {
      stage_weight_pieces(target, first, channels * taps);
    } else {
      stage_values<Lanes>(a, first, task.filters, channels * taps, lane, a.weight_pitch, target,
                          [&](int place) { return weight_offsets[place]; });
    }
    A* values = target + kBlockFilters * a.weight_pitch;
    const T* plane = a.source + (task.first_channel + channel) * a.source_plane;
    for (int c = 0; c < channels; ++c, plane += a.source_plane, values += a.channel_pitch) {
      for (int i = lane; i < a.positions; i += Lanes) {
        const int place = positions[i];
        stage_element<T>(values + i, plane + max(place, 0), place >= 0);
      }
    }
  }

  // Adds up a stage: four (channel, tap) pairs at a time, and the rest.
  CONVX_DEVICE void multiply(const A* stage, int chunk, A (&sums)[Filters][Pixels]) const {
    const A* const filter = stage + lane % kFilterLanes * a.weight_pitch;
    const A* const values = stage + kBlockFilters * a.weight_pitch + strip % a.across * Pixels +
                            strip / a.across * (a.rows == 1 ? 1 : a.stride_h) * a.pitch;
    const int count = min(a.chunk, a.channels - chunk * a.chunk) * taps;
    int i = 0;
    CONVX_NO_UNROLL
    for (; i + 4 <= count; i += 4) {
      const Vector<int, 4> tap = *reinterpret_cast<const Vector<int, 4>*>(tap_offsets + i);
      Vector<A, 4> factor[Filters];
      CONVX_UNROLL
      for (int k = 0; k < Filters; ++k) {
        factor[k] = *reinterpret_cast<const Vector<A, 4>*>(filter + k * kFilterLanes * a.weight_pitch + i);
      }
      CONVX_UNROLL
      for (int n = 0; n < 4; ++n) {
        add_product(values + tap.element[n], [&](int k) { return factor[k].element[n]; }, sums);
      }
    }
    CONVX_NO_UNROLL
    for (; i < count; ++i) {
      add_product(
          values + tap_offsets[i], [&](int k) { return filter[k * kFilterLanes * a.weight_pitch + i]; },
          sums);
    }
  }

  const Arguments<T>& a;
  const BlockTask task;
  const int lane;

 private:
  const int strip;
  int* tap_offsets;     // by (channel, tap) of a chunk: where its values lie from the strip's beginning
  int* weight_offsets;  // by the same: where it lies in a filter from the chunk's first channel
  int* positions;       // by staged element of a channel: its place in the source plane, -1 for padding
  int taps = 0;         // of the window

  CONVX_DEVICE void list_taps(int first_row, int first_column, int columns) const {
    for (int i = static_cast<int>(threadIdx.x); i < a.chunk * taps; i += static_cast<int>(blockDim.x)) {
      const int channel = i / taps, tap = i - channel * taps;
      const int row = tap / columns, column = tap - row * columns;
      weight_offsets[i] = channel * a.filter_height * a.filter_width + (first_row + row) * a.filter_width +
                          first_column + column;
      const int across = column * a.dilation_w, quotient = across / a.stride_w;
      tap_offsets[i] = channel * a.channel_pitch + row * a.dilation_h * a.pitch +
                       (across - quotient * a.stride_w) * a.residue_pitch + quotient;
    }
  }

  CONVX_DEVICE void list_positions(int row_origin, int column_origin) const {
    for (int i = static_cast<int>(threadIdx.x); i < a.positions; i += static_cast<int>(blockDim.x)) {
      const int line = i / a.pitch, place = i - line * a.pitch, residue = place / a.residue_pitch;
      const int row = row_origin + line * a.row_step;
      const int column = column_origin + residue + (place - residue * a.residue_pitch) * a.column_step;
      const bool inside =
          row >= 0 && row < a.source_height && column >= 0 && column < a.source_width && residue < a.residues;
      positions[i] = inside ? row * a.source_width + column : -1;
    }
  }

  CONVX_DEVICE void stage_weight_pieces(A* target, const T* first, int count) const {
    const int pieces = static_cast<int>(a.divide_pieces.divisor);
    const int filter_elements = a.channels * a.filter_height * a.filter_width;
    for (int i = lane; i < task.filters * pieces; i += Lanes) {
      const int filter = static_cast<int>(a.divide_pieces.quotient(i)), place = 4 * (i - filter * pieces);
      if (place < count) {
        stage_piece<T>(target + filter * a.weight_pitch + place, first + filter * filter_elements + place, 4);
      }
    }
  }
};

}  // namespace convx::cuconv::tile
