// The compiled forms of the strip kernel and their tiles, for the planner and the launcher alike.
#pragma once

namespace convx::depthwise::strip {

// How a lane's columns of the source become columns of the result: a correlation of stride 1 or 2, or the
// gradient of the latter, in which each source element spreads over two result rows and columns.
enum class Mapping : int { correlate1, correlate2, transpose2 };

// tall reuses the most rows; flat makes small problems into more units; the ragged ones take any width and
// alignment.
// rows_only and columns_only are the papers' halves: row reuse with halo columns loaded, and column reuse
// with one result row a lane.
enum class Variant : int { tall, flat, ragged_tall, ragged_flat, rows_only, columns_only };

struct Tile {
  int columns;     // source columns a lane holds
  int rows;        // result rows a lane makes
  int ahead;       // source rows loaded before they are used
  int threads;     // of a block
  int min_blocks;  // of a multiprocessor, which bounds registers
};

constexpr bool is_aligned(Variant variant) {
  return variant != Variant::ragged_tall && variant != Variant::ragged_flat;
}
// The variant that takes over where tensors turn out not to be aligned.
constexpr Variant ragged_of(Variant variant) {
  return variant == Variant::flat || variant == Variant::columns_only ? Variant::ragged_flat
                                                                      : Variant::ragged_tall;
}

// Which filters rows_only and columns_only are compiled for, in float32 and bfloat16.
constexpr bool has_halves(int filter, Mapping mapping) {
  return mapping == Mapping::correlate1 && (filter == 3 || filter == 5);
}

// Result columns of a lane that holds `columns` source columns.
constexpr int result_columns(Mapping mapping, int columns) {
  return mapping == Mapping::correlate1 ? columns
                                        : (mapping == Mapping::correlate2 ? columns / 2 : columns * 2);
}

constexpr Tile correlate1_tile(int bytes, int filter, Variant variant) {
  const int columns = 16 / bytes;
  if (variant == Variant::columns_only) return {columns, 1, filter, 128, 4};
  if (variant == Variant::rows_only) return {columns, 4, 4, 128, 4};
  if (variant == Variant::flat) return {columns, 2, filter == 3 ? 4 : 3, 64, filter == 7 ? 8 : 10};
  if (variant == Variant::ragged_flat) return {columns, 1, filter, 64, filter == 7 ? 8 : 10};
  if (variant == Variant::ragged_tall) return {columns, 4, 4, 128, filter == 3 ? 5 : 4};
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
  const bool flat = variant == Variant::flat || variant == Variant::ragged_flat;
  if (mapping == Mapping::correlate1) return correlate1_tile(bytes, filter, variant);
  if (mapping == Mapping::correlate2) {
    if (flat) return {16 / bytes, 1, filter, 64, filter == 7 ? 8 : 10};
    return {16 / bytes, 4, filter == 7 ? 4 : 6, 64, filter == 3 ? 10 : 8};
  }
  if (flat) return {4, 2, 4, 64, 8};
  return {4, 4, 5, 128, filter == 3 ? 5 : 4};
}

}  // namespace convx::depthwise::strip
