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
  // Of tall: as many rows as leave enough warps to hide memory's latency behind (measured on an H200).
  if (filter == 3) return bytes == 1 ? Tile{columns, 8, 64, 14} : Tile{columns, 8, 128, 5};
  if (filter == 5) {
    return bytes == 4   ? Tile{columns, 8, 64, 10}
           : bytes == 2 ? Tile{columns, 4, 128, 5}
                        : Tile{columns, 4, 64, 12};
  }
  if (filter == 7) return {columns, bytes == 4 ? 6 : 4, 64, bytes == 1 ? 9 : 8};
  return {columns, 4, 64, bytes == 4 ? 8 : 7};
}

}  // namespace convx::filter2d::strip
