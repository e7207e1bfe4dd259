// What the kernel is told, and what a block makes of it.
#pragma once
#include "methods/cuconv/tensor/tiles.h"
#include "methods/epilogue.cuh"
#include "methods/matrix/types.cuh"

namespace convx::cuconv::tensor {

// Where filters are in torch's order.
struct PlainOrder {
  int64_t group_step, filter_step, channel_step;
  int taps;
  bool flipped;

  CONVX_DEVICE int64_t first(uint32_t group, int filter, int tap) const {
    return group * group_step + filter * filter_step + (flipped ? taps - 1 - tap : tap);
  }
};

template <class T>
struct Arguments {
  const T* source;
  const unsigned char* filters;  // packed
  const T* plain_filters;        // of the split precision
  const T* bias;
  T* result;
  float* partial;  // planes of sums instead of results, where not null
  int64_t results;
  int channels, filter_count, steps, stages, plane_stages, m_tiles;
  int source_height, source_width, source_plane, result_height, result_width, result_plane;
  int batch, all_channels, all_filters;
  int depth, stage_taps, filter_width, taps, stride_h, stride_w, step_h, step_w, top, left;
  int residues_across, class_places, places, items, table_words, source_bytes, filter_bytes;
  int segment_taps, segments, batches, buffers;
  FastDivide divide_row_tiles, divide_column_tiles, divide_planes;
  FastDivide divide_image_places, divide_pitch, divide_result_plane;
  FastDivide divide_row_pairs, divide_source_height;  // for windows by pairs
  int neighbours;                                     // results that can be written at once
  PlainOrder plain;
  Finishing<T> finishing;
};

constexpr int kNothing = -1;  // a place without a source element, or without a result
constexpr int kMostNeighbours = 8;

// The tile of a block.
template <class Tile, class T>
struct Task {
  uint32_t group, row_tile, plane, first_place, first_image;
  uint32_t first_pixel, end_pixel;  // results, counted over all images

  CONVX_DEVICE explicit Task(const Arguments<T>& a) {
    const uint32_t block = blockIdx.x, of_row = a.divide_row_tiles.quotient(block);
    row_tile = block - of_row * a.divide_row_tiles.divisor;
    const uint32_t of_column = a.divide_column_tiles.quotient(of_row);
    first_place = (of_row - of_column * a.divide_column_tiles.divisor) * Tile::kColumns;
    group = a.divide_planes.quotient(of_column);
    plane = of_column - group * a.divide_planes.divisor;
    first_image = a.divide_image_places.quotient(first_place);
    first_pixel = pixels_before(a, first_place);
    end_pixel = pixels_before(a, first_place + Tile::kColumns);
  }

  struct Place {
    int image, line, column;  // the image counted from the first
  };
  CONVX_DEVICE Place locate(const Arguments<T>& a, uint32_t place) const {
    const uint32_t image = a.divide_image_places.quotient(place);
    const uint32_t rest = place - image * a.divide_image_places.divisor, line = a.divide_pitch.quotient(rest);
    return {static_cast<int>(image - first_image), static_cast<int>(line),
            static_cast<int>(rest - line * a.divide_pitch.divisor)};
  }

  // Of a place of the window: the element of a channel from the first image on.
  CONVX_DEVICE int source_element(const Arguments<T>& a, int i) const {
    const int residue = i / a.class_places, down = residue / a.residues_across;
    const Place at = locate(a, first_place + i - residue * a.class_places);
    const int row = at.line * a.stride_h + down - a.top;
    const int column = at.column * a.stride_w + residue - down * a.residues_across - a.left;
    const bool inside = at.image + static_cast<int>(first_image) < a.batch && row >= 0 &&
                        row < a.source_height && column >= 0 && column < a.source_width;
    return inside ? at.image * a.all_channels * a.source_plane + row * a.source_width + column : kNothing;
  }

  // Pairs of neighbouring source columns, an even one first, counted over rows and images from the first
  // image on. Those before a place: with both columns, or (1) with the first alone too.
  CONVX_DEVICE int pairs_before(const Arguments<T>& a, uint32_t place, int first_alone) const {
    const Place at = locate(a, place);
    const int pairs = static_cast<int>(a.divide_row_pairs.divisor), row = at.line - a.top;
    const int line = at.image * a.source_height + min(max(row, 0), a.source_height);
    const bool inside = row >= 0 && row < a.source_height;
    return line * pairs + (inside ? min(max(at.column - a.left + first_alone, 0) / 2, pairs) : 0);
  }

  struct Pair {
    int element, place;  // of the window: -1, too, where only its second place is
  };
  CONVX_DEVICE Pair source_pair(const Arguments<T>& a, int i, int first, int end) const {
    if (first + i >= end) return {kNothing, 0};
    const uint32_t pair = first + i, line = a.divide_row_pairs.quotient(pair);
    const int column = 2 * static_cast<int>(pair - line * a.divide_row_pairs.divisor);
    const uint32_t image = a.divide_source_height.quotient(line);
    if (static_cast<int>(first_image + image) >= a.batch) return {kNothing, 0};
    const int row = static_cast<int>(line - image * a.divide_source_height.divisor);
    const uint32_t of_image = (row + a.top) * a.divide_pitch.divisor + column + a.left;
    return {static_cast<int>(image) * a.all_channels * a.source_plane + row * a.source_width + column,
            static_cast<int>((first_image + image) * a.divide_image_places.divisor + of_image - first_place)};
  }

  // Results of all images before a place.
  CONVX_DEVICE uint32_t pixels_before(const Arguments<T>& a, uint32_t place) const {
    const Place at = locate(a, place);
    const int line = min(at.line, a.result_height);
    const int column = line < a.result_height ? min(at.column, a.result_width) : 0;
    return min((first_image + at.image) * a.result_plane + line * a.result_width + column,
               static_cast<uint32_t>(a.batch * a.result_plane));
  }
  CONVX_DEVICE uint32_t origin() const { return first_pixel / kMostNeighbours * kMostNeighbours; }

  // Of a column of the tile: its result, counted from origin() on.
  CONVX_DEVICE int result_index(const Arguments<T>& a, int column) const {
    const Place at = locate(a, first_place + column);
    const uint32_t image = first_image + at.image;
    const bool inside =
        static_cast<int>(image) < a.batch && at.line < a.result_height && at.column < a.result_width;
    return inside ? static_cast<int>(image * a.result_plane + at.line * a.result_width + at.column - origin())
                  : kNothing;
  }
};

}  // namespace convx::cuconv::tensor
