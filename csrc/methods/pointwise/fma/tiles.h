// The tilings that are compiled: what the planner may choose and the launchers have.
#pragma once
#include "problem/problem.h"

namespace convx::pointwise::fma {

// A thread sums Rows x Columns products; ThreadRows x ThreadColumns threads are a block.
template <int Rows, int Columns, int ThreadRows, int ThreadColumns>
struct Tile {
  static constexpr int kThreadRows = ThreadRows, kThreadColumns = ThreadColumns;
  static constexpr int kRowsEach = Rows, kColumnsEach = Columns;
  static constexpr int kRows = Rows * ThreadRows, kColumns = Columns * ThreadColumns;
  static constexpr int kThreads = ThreadRows * ThreadColumns;
};

// What the operands are: nchw and nhwc are the forward product and the input gradient.
enum Role : int { kNchw = 0, kNhwc = 1, kNchwWeight = 2, kNhwcWeight = 3 };

// Elements of depth in a stage of shared memory, of which a ring of three is in flight.
constexpr int kStages = 3;
constexpr int depth_of(int element_bytes) {
  return element_bytes == 8 ? 8 : 16;
}

// Calls body(Tile()) for the tile of an index; false where there is none. Large tiles read their operands
// seldom; small ones make blocks enough of a single image; the flat ones are for few filters. float32 has the
// most, since it has no matrix unit of its own precision.
template <int ElementBytes, Role Kind, class Body>
constexpr bool with_tile(int index, const Body& body) {
  if constexpr (ElementBytes == 8) {
    switch (index) {
      case 0:
        return body(Tile<4, 4, 16, 16>()), true;
      case 1:
        return body(Tile<4, 2, 8, 16>()), true;
    }
  } else if constexpr (ElementBytes == 4 && Kind == kNchw) {
    switch (index) {
      case 0:
        return body(Tile<8, 8, 8, 16>()), true;  // 64 x 128
      case 1:
        return body(Tile<4, 8, 8, 16>()), true;  // 32 x 128
      case 2:
        return body(Tile<8, 8, 2, 32>()), true;  // 16 x 256
      case 3:
        return body(Tile<8, 4, 8, 16>()), true;  // 64 x 64
      case 4:
        return body(Tile<4, 4, 8, 8>()), true;  // 32 x 32
    }
  } else {
    switch (index) {
      case 0:
        return body(Tile<8, 8, 8, 16>()), true;
      case 1:
        return body(Tile<4, 4, 8, 8>()), true;
    }
  }
  return false;
}

}  // namespace convx::pointwise::fma
