// The compiled forms of the strip kernel and their tiles, for the planner and the launcher alike.
#pragma once

namespace convx::filter2d::strip {

// tall reuses the most rows; flat makes small images into more warps. ragged takes any width, padding and
// alignment, element by element.
enum class Variant : int { tall, flat, ragged };

struct Tile {
  int columns;     // a lane's, of source and result: 16 bytes, or 8 of uint8
  int rows;        // result rows a lane makes
  int threads;     // of a block
  int min_blocks;  // of a multiprocessor, which bounds registers
};

constexpr int kMostFilters = 8;  // that a block runs with its rows in registers

constexpr bool has_filter(long long side) {
  return side == 3 || side == 5 || side == 7 || side == 9;
}

constexpr int columns_of(int bytes) {
  return bytes == 4 ? 4 : 8;
}

constexpr Tile tile_of(int bytes, int filter, Variant variant) {
  const int columns = columns_of(bytes);
  if (variant == Variant::flat) return {columns, 2, 64, filter <= 5 ? 10 : 8};
  if (variant == Variant::ragged) return {columns, 4, 128, filter <= 5 ? 4 : 3};
  if (filter == 3) return {columns, 8, 128, bytes == 2 ? 4 : 5};
  if (filter == 5 && bytes == 4) return {columns, 8, 64, 8};
  if (filter == 5) return {columns, bytes == 1 ? 8 : 4, 128, 4};
  return {columns, 4, 128, bytes == 4 ? 4 : 3};
}

}  // namespace convx::filter2d::strip
