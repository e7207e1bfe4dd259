// Rows in registers: a lane loads a strip of columns of a few rows at once, takes the halo columns from its
// neighbour lanes by shuffle (column reuse), uses each row for every result row that needs it (row reuse),
// and runs all filters of a bank on what it holds. Only lanes at an image's edges map indices through its
// border.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/filter2d/strip/taps.cuh"
#include "methods/filter2d/strip/tiles.h"
#include "methods/filter2d/strip/words.cuh"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::strip {

template <class T>
struct Arguments {
  const T* images;
  const FilterElement<T>* filters;
  const FilterElement<T>* bias;  // null without
  T* result;
  int height, width, out_height, out_width;
  int top;   // result row 0 has its first tap at image row -top
  int left;  // strip 0 of the result has image columns from -left on at its centre
  int step, groups_per_warp;
  int filters_count, filters_per_block;
  FastDivide group_lanes, stack, segments, row_stacks, filter_groups;
  uint32_t units;
  Border border;
  Activation activation;
};

// What a lane makes, and where.
struct Place {
  int64_t image;
  int column, row;  // of the image: first of the lane's strip, first of its rows
  int result_column, result_row;
  bool loads, makes;
};

template <int Lanes, class T, int Columns, int Rows>
CONVX_DEVICE Place place_of(const Arguments<T>& a, uint32_t warp, int lane) {
  const int group = static_cast<int>(a.group_lanes.quotient(lane));
  const int within = lane - group * static_cast<int>(a.group_lanes.divisor);
  uint32_t unit = warp * a.groups_per_warp + group;
  const bool live = group < a.groups_per_warp && unit < a.units;
  if (!live) unit = a.units - 1;
  // Tiles of a stack lie next to each other in a block, then segments, stacks and images.
  uint32_t rest = a.stack.quotient(unit);
  const uint32_t level = unit - rest * a.stack.divisor;
  const uint32_t above = a.segments.quotient(rest);
  const int segment = static_cast<int>(rest - above * a.segments.divisor);
  rest = a.row_stacks.quotient(above);
  const uint32_t tile = (above - rest * a.row_stacks.divisor) * a.stack.divisor + level;
  const int strip = segment * a.step + within - 1;
  Place place;
  place.image = rest;
  place.result_column = strip * Columns;
  place.column = place.result_column - a.left;
  place.result_row = static_cast<int>(tile) * Rows;
  place.row = place.result_row - a.top;
  place.loads = live && place.result_row < a.out_height;
  place.makes = place.loads && within > 0 && within <= a.step && place.result_column < a.out_width;
  return place;
}

// Rows of a lane at the edge of the image; aligned strips lie inside it or beside it as a whole.
template <bool Aligned, class T, int Columns, int Rows>
CONVX_DEVICE void load_edge(const Arguments<T>& a, const T* image, const Place& place,
                            Words<T, Columns> (&rows)[Rows]) {
  const bool vectors = Aligned && place.column >= 0 && place.column < a.width;
  if (Aligned && !vectors && a.border == Border::zero) return;
  int offset[Columns] = {};
  if (!vectors) {
    CONVX_UNROLL
    for (int j = 0; j < Columns; ++j) offset[j] = near_border_index(place.column + j, a.width, a.border);
  }
  CONVX_UNROLL
  for (int i = 0; i < Rows; ++i) {
    const int row = near_border_index(place.row + i, a.height, a.border);
    if (row < 0) continue;
    const T* from = image + static_cast<int64_t>(row) * a.width;
    rows[i] = vectors ? load_strip<T, Columns>(from + place.column) : gather_strip<T, Columns>(from, offset);
  }
}

template <class T, int Filter, Variant V>
struct Form {
  static constexpr Tile kTile = tile_of(static_cast<int>(sizeof(T)), Filter, V);
  static constexpr int kThreads = kTile.threads, kMinBlocks = kTile.min_blocks;
};

template <int Lanes, class T, int Filter, Variant V>
CONVX_KERNEL((Form<T, Filter, V>::kThreads), (CONVX_TIGHT_BLOCKS((Form<T, Filter, V>::kMinBlocks))))
filter_strip_kernel(Arguments<T> a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  using Shape = Form<T, Filter, V>;
  constexpr int kColumns = Shape::kTile.columns, kRows = Shape::kTile.rows, kThreads = Shape::kThreads;
  constexpr int kHalo = Filter / 2, kSourceRows = kRows + Filter - 1, kPieces = Taps<Filter>::kPieces;
  constexpr bool kAligned = V != Variant::ragged;

  const int lane = static_cast<int>(threadIdx.x) % Lanes;
  const uint32_t block = a.filter_groups.quotient(blockIdx.x);
  const int first_filter =
      static_cast<int>(blockIdx.x - block * a.filter_groups.divisor) * a.filters_per_block;
  const int filters = min(a.filters_per_block, a.filters_count - first_filter);
  const Place place =
      place_of<Lanes, T, kColumns, kRows>(a, block * (kThreads / Lanes) + threadIdx.x / Lanes, lane);

  const T* image = a.images + place.image * a.height * a.width;
  take_turn();
  Words<T, kColumns> rows[kSourceRows] = {};
  const bool inside = place.column >= 0 && place.column + kColumns <= a.width && place.row >= 0 &&
                      place.row + kSourceRows <= a.height;
  if (place.loads && inside) {
    const T* from = image + (static_cast<int64_t>(place.row) * a.width + place.column);
    CONVX_UNROLL
    for (int i = 0; i < kSourceRows; ++i) {
      const T* row = from + static_cast<int64_t>(i) * a.width;
      rows[i] = kAligned ? load_strip<T, kColumns>(row) : load_ragged_strip<T, kColumns>(row);
    }
  } else if (place.loads) {
    load_edge<kAligned>(a, image, place, rows);
  }

  using Piece = typename Taps<Filter>::Piece;
  CONVX_SHARED(Piece, taps, [kMostFilters * Filter * kPieces]);
  const FilterElement<T>* from = a.filters + static_cast<int64_t>(first_filter) * (Filter * Filter);
  for (int i = static_cast<int>(threadIdx.x); i < filters * Filter * Filter; i += kThreads) {
    taps[i / Filter * kPieces + i % Filter / 4].element[i % Filter % 4] =
        widen(load<FilterElement<T>, 1>(from + i).element[0]);
  }
  block_barrier();

  const int64_t plane = static_cast<int64_t>(a.out_height) * a.out_width;
  T* result = a.result + (place.image * a.filters_count + first_filter) * plane +
              (static_cast<int64_t>(place.result_row) * a.out_width + place.result_column);
  const int made = place.makes ? a.out_height - place.result_row : 0;
  CONVX_NO_UNROLL
  for (int f = 0; f < filters; ++f, result += plane) {
    Taps<Filter> filter(taps, f);
    // Not bias_of, by which filters of 7x7 spill.
    const float bias =
        a.bias != nullptr ? widen(load<FilterElement<T>, 1>(a.bias + first_filter + f).element[0]) : 0.0f;
    float sum[kRows][kColumns];
    CONVX_UNROLL
    for (int o = 0; o < kRows; ++o) {
      CONVX_UNROLL
      for (int v = 0; v < kColumns; ++v) sum[o][v] = bias;
    }
    using Window = float[kHalo + kColumns + kHalo];
    unrolled<kSourceRows>([&](auto step) {
      constexpr int i = decltype(step)::value;
      if constexpr (sizeof(T) < 4) {
        CONVX_UNROLL
        for (uint32_t& word : rows[i].word) make_opaque(word);
      }
      Window window;
      exchange<Lanes, T, kColumns, kHalo, kHalo>(rows[i], lane, window);
      filter.next_image_row();
      CONVX_UNROLL
      for (int r = Filter - 1; r >= 0; --r) {
        const int o = i - r;
        if (o < 0 || o >= kRows) continue;
        float row[Filter];
        filter.read(r, row);
        CONVX_UNROLL
        for (int q = 0; q < Filter; ++q) {
          const float tap = row[q];
          CONVX_UNROLL
          for (int v = 0; v < kColumns; ++v) sum[o][v] = multiply_add(window[q + v], tap, sum[o][v]);
        }
      }
      // Or compilers would delay the sums of a row to the branch that stores them, and keep what they add.
      CONVX_UNROLL
      for (int o = 0; o < kRows; ++o) {
        if (i < o || i >= o + Filter) continue;
        CONVX_UNROLL
        for (int v = 0; v < kColumns; ++v) make_opaque(sum[o][v]);
      }
      constexpr int o = i - (Filter - 1);
      if constexpr (o >= 0) {
        if (o < made) {
          activate<T>(sum[o], a.activation);
          T* to = result + static_cast<int64_t>(o) * a.out_width;
          if constexpr (kAligned) {
            store_strip<T, kColumns>(to, sum[o]);
          } else {
            store_ragged<T, kColumns>(to, sum[o], a.out_width - place.result_column);
          }
        }
      }
    });
  }
}

}  // namespace convx::filter2d::strip
