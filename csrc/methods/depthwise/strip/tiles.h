// The compiled forms of the strip kernel and their tiles, for the planner and the launcher alike.
#pragma once
#include "problem/problem.h"

namespace convx::depthwise::strip {

// How a lane's columns of the source become columns of the result: a correlation of stride 1 or 2, or the
// gradient of the latter, in which each source element spreads over two result rows and columns.
enum class Mapping : int { correlate1, correlate2, transpose2 };

// tall reuses the most rows; flat makes small problems into more units. narrow holds half as many columns,
// for rows of whole 8-byte but not 16-byte pieces; ragged takes any width and alignment, element by element.
// rows_only and columns_only are the papers' halves: row reuse with halo columns loaded, and column reuse
// with one result row a lane. no_reuse has neither, for a comparison of kernels that are alike otherwise.
enum class Variant : int {
  tall,
  flat,
  ragged_tall,
  ragged_flat,
  rows_only,
  columns_only,
  narrow_tall,
  narrow_flat,
  no_reuse,
  narrow_rows_only,
  narrow_columns_only,
  narrow_no_reuse,
  ragged_rows_only,
  ragged_columns_only,
  ragged_no_reuse
};

struct Tile {
  int columns;     // source columns a lane holds
  int rows;        // result rows a lane makes
  int ahead;       // source rows loaded before they are used
  int threads;     // of a block
  int min_blocks;  // of a multiprocessor, which bounds registers
};

constexpr bool is_flat(Variant variant) {
  return variant == Variant::flat || variant == Variant::ragged_flat || variant == Variant::narrow_flat;
}
constexpr bool is_narrow(Variant variant) {
  return variant == Variant::narrow_tall || variant == Variant::narrow_flat ||
         (variant >= Variant::narrow_rows_only && variant <= Variant::narrow_no_reuse);
}
constexpr bool is_aligned(Variant variant) {
  return variant != Variant::ragged_tall && variant != Variant::ragged_flat &&
         variant < Variant::ragged_rows_only;
}
constexpr bool is_rows_only(Variant variant) {
  return variant == Variant::rows_only || variant == Variant::narrow_rows_only ||
         variant == Variant::ragged_rows_only;
}
constexpr bool is_columns_only(Variant variant) {
  return variant == Variant::columns_only || variant == Variant::narrow_columns_only ||
         variant == Variant::ragged_columns_only;
}
constexpr bool is_no_reuse(Variant variant) {
  return variant == Variant::no_reuse || variant == Variant::narrow_no_reuse ||
         variant == Variant::ragged_no_reuse;
}
constexpr bool has_one_row(Variant variant) {
  return is_columns_only(variant) || is_no_reuse(variant);
}
constexpr bool loads_halo(Variant variant) {
  return is_rows_only(variant) || is_no_reuse(variant);
}
// The variant that takes over where tensors turn out not to be aligned; the papers' forms have their own in
// float32 alone.
constexpr Variant ragged_of(DType dtype, Variant variant) {
  if (dtype == DType::float32) {
    if (is_rows_only(variant)) return Variant::ragged_rows_only;
    if (is_columns_only(variant)) return Variant::ragged_columns_only;
    if (is_no_reuse(variant)) return Variant::ragged_no_reuse;
  }
  return is_flat(variant) || has_one_row(variant) ? Variant::ragged_flat : Variant::ragged_tall;
}

// Whether it has code for scales and residuals, for which larger filters leave registers where lanes hold few
// columns alone; the variant for tensors that are not aligned takes over.
constexpr bool has_any_epilogue(int filter, Variant variant) {
  return filter == 3 || !is_aligned(variant);
}

// Halo columns come from the next lane alone, which must hold as many.
constexpr bool has_narrow(int bytes, int filter, Mapping mapping) {
  return mapping == Mapping::transpose2 || filter / 2 * bytes <= 8;
}

// What rows_only, columns_only and no_reuse are compiled for: float32, which the papers have, and bfloat16 at
// stride 1 with the widest accesses.
constexpr bool has_halves(DType dtype, int filter, Mapping mapping, Variant variant) {
  if (mapping == Mapping::transpose2 || filter > 5) return false;
  const bool widest = is_aligned(variant) && !is_narrow(variant);
  return dtype == DType::float32 || (dtype == DType::bfloat16 && mapping == Mapping::correlate1 && widest);
}

// Result columns of a lane that holds `columns` source columns.
constexpr int result_columns(Mapping mapping, int columns) {
  return mapping == Mapping::correlate1 ? columns
                                        : (mapping == Mapping::correlate2 ? columns / 2 : columns * 2);
}

// Source columns of a lane: 16 bytes where that is what it loads at once.
constexpr int columns_of(int bytes, Mapping mapping, Variant variant) {
  if (mapping == Mapping::transpose2) return is_narrow(variant) ? 2 : 4;
  if (is_narrow(variant)) return 8 / bytes;
  return is_aligned(variant) ? 16 / bytes : 4;
}

constexpr Tile correlate1_tile(int bytes, int filter, int columns, Variant variant) {
  if (has_one_row(variant)) return {columns, 1, filter, 128, 4};
  if (is_rows_only(variant)) return {columns, 4, 4, 128, 4};
  if (variant == Variant::ragged_flat) return {columns, 1, filter, 64, filter == 7 ? 8 : 10};
  if (variant == Variant::narrow_flat && bytes == 4 && filter == 3) return {columns, 1, 3, 128, 4};
  if (is_flat(variant)) return {columns, 2, filter == 3 ? 4 : 3, 64, filter == 7 ? 8 : 10};
  if (variant == Variant::ragged_tall) return {columns, 4, 4, 128, filter == 3 ? 5 : 4};
  if (variant == Variant::narrow_tall) {
    if (filter == 3) return {columns, 7, 8, 64, 12};
    return {columns, 4, filter == 5 ? 6 : 4, 128, filter == 5 ? 6 : 4};
  }
  if (bytes == 4) {
    if (filter == 3) return {columns, 4, 8, 64, 16};
    if (filter == 5) return {columns, 4, 4, 128, 8};
    return {columns, 4, 4, 128, 4};
  }
  if (filter == 3) return {columns, 7, 6, 128, 5};
  return {columns, 4, 4, 128, 4};
}

// bytes of an element; filter is the side of the square filter.
constexpr Tile tile_of(int bytes, int filter, Mapping mapping, Variant variant) {
  const int columns = columns_of(bytes, mapping, variant);
  if (mapping == Mapping::correlate1) return correlate1_tile(bytes, filter, columns, variant);
  if (mapping == Mapping::correlate2) {
    if (has_one_row(variant)) return {columns, 1, filter, 128, 4};
    if (is_rows_only(variant)) return {columns, 4, 6, 128, 4};
    // Blocks of 64 threads took 1.2 times as long where they are some thousands (float32 on an H200).
    if (is_flat(variant) && is_aligned(variant) && bytes == 4 && filter == 3) return {columns, 1, 3, 128, 4};
    if (is_flat(variant)) return {columns, 1, filter, 64, filter == 7 ? 8 : 10};
    return {columns, 4, filter == 7 ? 4 : 6, 64, filter == 3 ? 10 : 8};
  }
  if (is_flat(variant)) return {columns, 2, 4, 64, 8};
  return {columns, 4, 5, 128, filter == 3 ? 5 : 4};
}

}  // namespace convx::depthwise::strip
