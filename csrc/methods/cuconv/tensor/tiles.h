// The tilings that are compiled: what the planner may choose and the launcher has.
#pragma once
#include "methods/matrix/precision.h"

namespace convx::cuconv::tensor {

using matrix::Precision;

// Groups warpgroups multiply 64 filters each with the same Columns places of results, while Loaders more
// threads bring what a later stage multiplies, some places each at once: a warp that has issued products
// waits for most of them before it can do anything else.
template <int Groups, int Columns, int Loaders, int Lines, int Blocks>
struct Tile {
  static constexpr int kGroups = Groups, kColumns = Columns, kLoaders = Loaders, kLines = Lines;
  static constexpr int kFilters = 64 * Groups, kMultipliers = 128 * Groups, kThreads = kMultipliers + Loaders;
  static constexpr int kBlocks = Blocks;     // of a multiprocessor that leave a thread its registers
  static constexpr int kSums = Columns / 2;  // a thread
  // Between a tile's rows of sums in shared memory: the first may begin at the last of eight neighbours.
  static constexpr int kSumPitch = Columns + 8;
  static constexpr int kSumBytes = kFilters * kSumPitch * 4;
};

// A step is as many channels as make 64 bytes of a place: four pieces of 16 bytes, two for each product.
constexpr int kPieces = 4, kPieceBytes = 16;
constexpr int piece_channels(Precision precision) {
  return kPieceBytes / matrix::element_bytes(precision);
}
constexpr int step_channels(Precision precision) {
  return kPieces * piece_channels(precision);
}
// Items, of places that come together, that a thread brings at once: their channels of a step take Lines
// times 32 registers, a pair of 16-bit values one.
template <Precision Kind, class Tile>
constexpr int items_each(int64_t together) {
  const int registers = matrix::element_bytes(Kind) == 2 ? 1 : static_cast<int>(together);
  return Tile::kLines * 32 / (step_channels(Kind) * registers);
}
constexpr int kFilterTile = 64;                         // filters that are packed together
constexpr int kFilterStep = kFilterTile * kPieceBytes;  // from a piece of theirs to the next
constexpr int filter_tile_bytes(Precision precision) {  // with a step's channels, at one tap
  return kPieces * matrix::parts(precision) * kFilterStep;
}
constexpr int kFilterStages = 4;
constexpr int kBarrierBytes = 8 * kFilterStages;  // of shared memory, beside what a launch asks for
// Taps of a segment: what comes together, and is left to go on while threads meet.
constexpr int kSegmentTaps[] = {1, 2, 3, 4, 5};
constexpr int kDepths[] = {1, 2, 4};  // steps of channels of a stage

// Calls body(Tile()) for the tile of an index; false where there is none. Of the split precision a thread has
// twice as many sums, those of a tap beside those of all.
template <Precision Kind, class Body>
constexpr bool with_tile(int index, const Body& body) {
  if constexpr (Kind == matrix::kSplit) {
    switch (index) {
      case 0:
        return body(Tile<2, 128, 128, 2, 1>()), true;
      case 1:
        return body(Tile<1, 128, 64, 2, 2>()), true;
      case 2:
        return body(Tile<1, 64, 64, 1, 3>()), true;
      case 3:
        return body(Tile<1, 64, 128, 1, 2>()), true;
      case 4:
        return body(Tile<2, 64, 128, 1, 1>()), true;
      default:
        return false;
    }
  } else {
    switch (index) {
      case 0:
        return body(Tile<2, 256, 128, 2, 1>()), true;
      case 1:
        return body(Tile<1, 256, 64, 2, 2>()), true;
      case 2:
        return body(Tile<1, 128, 64, 1, 3>()), true;
      case 3:
        return body(Tile<1, 64, 64, 1, 3>()), true;
      case 4:
        return body(Tile<1, 64, 128, 1, 2>()), true;
      case 5:
        return body(Tile<2, 64, 128, 1, 1>()), true;
      case 6:
        return body(Tile<1, 128, 128, 2, 2>()), true;
      default:
        return false;
    }
  }
}
constexpr int kMostTiles = 7;

}  // namespace convx::cuconv::tensor
