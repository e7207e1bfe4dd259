// What the tile kernel is told, and what every block makes of it.
#pragma once
#include "methods/cuconv/tile/geometry.h"
#include "methods/epilogue.cuh"
#include "platform/gpu/async_copy.h"
#include "platform/gpu/platform.h"

namespace convx::cuconv::tile {

template <class T>
struct Arguments {
  const T* source;  // flat: aligned down to a piece of four elements, source_offset elements before the first
  const T* weight;
  const T* bias;
  T* result;
  Accumulator<T>* partial;  // planes of sums, or null where they are results
  int64_t source_offset, source_end, results;
  int groups, channels, filters, source_height, source_width, source_plane, result_height, result_width,
      result_plane;
  int filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w, top, left;
  FastDivide filter_blocks, all_filter_blocks, planes, tiles, tiles_across;
  // Of the tiling and geometry.
  bool planes_are_taps, wide_weights;
  int warps, chunk, chunks, stages, rows, columns, windows_across, windows, across, tile_width;
  int row_step, column_step, residues, residue_pitch, pitch, positions, channel_pitch;
  int reduction, weight_pitch, stage, table_words, part;
  FastDivide divide_values;  // of a filter in a stage: by fours where weights are wide, else one by one
  Finishing<T> finishing;
};

// One element, or zero, into shared memory as an accumulator.
template <class T>
CONVX_DEVICE void stage_element(Accumulator<T>* to, const T* from, bool inside) {
  if constexpr (sizeof(T) >= 4) {
    copy_async<static_cast<int>(sizeof(T))>(to, from, inside ? static_cast<int>(sizeof(T)) : 0);
  } else {
    *to = inside ? widen(*from) : 0.0f;
  }
}
// Four neighbours, aligned, of which the first `valid` (at least one) exist.
template <class T>
CONVX_DEVICE void stage_piece(Accumulator<T>* to, const T* from, int valid) {
  if constexpr (sizeof(T) == 4) {
    copy_async<16>(to, from, 4 * valid);
  } else if constexpr (sizeof(T) == 8) {
    copy_async<16>(to, from, 8 * min(valid, 2));
    copy_async<16>(to + 2, valid > 2 ? from + 2 : from, 8 * max(valid - 2, 0));
  } else if (valid == 4) {
    const Vector<T, 4> loaded = load<T, 4>(from);
    Vector<Accumulator<T>, 4> wide;
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) wide.element[i] = widen(loaded.element[i]);
    *reinterpret_cast<Vector<Accumulator<T>, 4>*>(to) = wide;
  } else {
    for (int i = 0; i < valid; ++i) to[i] = widen(from[i]);
  }
}

// What a block works on.
struct BlockTask {
  int filters, plane, first_row, first_column;  // filters that exist; first pixel of the tile
  int64_t image, first_filter, first_channel;   // of all groups' filters; of all images' channels
};

template <class T>
CONVX_DEVICE BlockTask task_of(const Arguments<T>& a, int block_filters, int block_pixels, bool flat) {
  BlockTask task;
  const uint32_t planes = a.all_filter_blocks.quotient(blockIdx.x);
  const uint32_t block = blockIdx.x - planes * a.all_filter_blocks.divisor;
  const int group = static_cast<int>(a.filter_blocks.quotient(block));
  const int first =
      (static_cast<int>(block) - group * static_cast<int>(a.filter_blocks.divisor)) * block_filters;
  task.filters = min(block_filters, a.filters - first);
  task.first_filter = static_cast<int64_t>(group) * a.filters + first;
  const uint32_t tiles = a.planes.quotient(planes);
  task.plane = static_cast<int>(planes - tiles * a.planes.divisor);
  task.image = a.tiles.quotient(tiles);
  task.first_channel = (task.image * a.groups + group) * a.channels;
  const uint32_t tile = tiles - static_cast<uint32_t>(task.image) * a.tiles.divisor;
  const uint32_t row = a.tiles_across.quotient(tile);
  const int width = flat ? block_pixels : a.tile_width;
  task.first_row = static_cast<int>(row) * (block_pixels / width);
  task.first_column = static_cast<int>(tile - row * a.tiles_across.divisor) * width;
  keep_per_lane(task.filters);
  keep_per_lane(task.plane);
  keep_per_lane(task.first_row);
  keep_per_lane(task.first_column);
  keep_per_lane(task.image);
  keep_per_lane(task.first_filter);
  keep_per_lane(task.first_channel);
  return task;
}

// Filter values into a stage, one at a time: offset_of(place) says where a value lies in a filter, counted
// from `first`.
template <int Lanes, class T, class OffsetOf>
CONVX_DEVICE void stage_values(const Arguments<T>& a, const T* first, int filters, int count, int lane,
                               int pitch, Accumulator<T>* stage, const OffsetOf& offset_of) {
  const int values = static_cast<int>(a.divide_values.divisor);
  const int filter_elements = a.channels * a.filter_height * a.filter_width;
  for (int i = lane; i < filters * values; i += Lanes) {
    const int filter = static_cast<int>(a.divide_values.quotient(i)), place = i - filter * values;
    if (place < count) {
      stage_element<T>(stage + filter * pitch + place, first + filter * filter_elements + offset_of(place),
                       true);
    }
  }
}

// sums += factor(k) * strip[j], one product of each filter and pixel.
template <int Filters, int Pixels, class A, class Factor>
CONVX_DEVICE void add_product(const A* strip, const Factor& factor, A (&sums)[Filters][Pixels]) {
  CONVX_UNROLL
  for (int j = 0; j < Pixels; ++j) {
    const A value = strip[j];
    CONVX_UNROLL
    for (int k = 0; k < Filters; ++k) sums[k][j] = multiply_add(value, factor(k), sums[k][j]);
  }
}

}  // namespace convx::cuconv::tile
