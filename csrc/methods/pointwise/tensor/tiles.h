// The tilings that are compiled: what the planner may choose and the launcher has.
#pragma once
#include <cstdint>

#include "methods/matrix/precision.h"

namespace convx::pointwise::tensor {

using matrix::element_bytes;
using matrix::kBfloat16;
using matrix::kFloat16;
using matrix::kSplit;
using matrix::kTf32;
using matrix::parts;
using matrix::Precision;
using matrix::step_depth;

// How the source's pixels come to the block: rows of [channel][pixels], copied 16 or, short, 8 bytes at a
// time; whole images of 48 to 56 pixels as they lie; element by element, which any stride and padding allow;
// of channels_last tensors, rows of [pixel][channels]; or the pieces of 16 bytes that rows of float32 lie in
// which begin between such pieces, a tile in one image.
enum Access : int { kRows = 0, kShortRows = 1, kPlanes = 2, kElements = 3, kChannels = 4, kShifted = 5 };

// Whether a lane's sums are of pixels kFragmentColumns apart, not of neighbours.
constexpr bool is_spread(Access access) {
  return access == kPlanes || access == kShifted;
}

// Matrix units of AMD's take float32 as it is, so they need no split; pixels of channels_last take more
// scalar registers there than a wave has.
constexpr bool planned_on_amd(Precision precision, Access access) {
  return precision != kSplit && access != kChannels;
}
// Beside a launch's shared memory: a word of 8 bytes a stage.
constexpr int kBarrierBytes = 128;
constexpr int kMostPlanePixels = 56, kFewestPlanePixels = 48;

// A warp multiplies 16 * Rows filters with one group of pixels; WarpRows x WarpColumns warps are a tile, and
// WarpDepths of those share out the channels. A stage has Steps fragments of channels for each of them.
template <int Rows, int WarpRows, int WarpColumns, int WarpDepths, int Steps, int Stages>
struct Tile {
  static constexpr int kRowsEach = Rows, kWarpRows = WarpRows, kWarpColumns = WarpColumns;
  static constexpr int kWarpDepths = WarpDepths, kSteps = Steps, kStages = Stages;
  static constexpr int kRowTiles = Rows * WarpRows, kRows = 16 * kRowTiles;
  static constexpr int kWarps = WarpRows * WarpColumns * WarpDepths;
  static constexpr int kStageSteps = WarpDepths * Steps;
};

// Sizes that follow from a tile; Lanes is the warp's width.
template <Precision Kind, int Lanes, Access How, class Tile>
struct Sizes {
  static constexpr int kBytes = element_bytes(Kind), kParts = parts(Kind);
  static constexpr int kFragmentColumns = Lanes / 4;
  static constexpr int kThreads = Lanes * Tile::kWarps;
  static constexpr int kStages = Lanes == 64 ? 2 : Tile::kStages;  // copies are synchronous there
  // Neighbouring pixels of a lane: those of its fragments of pixels.
  static constexpr int kNeighbours = How == kShortRows ? 4 : 16 / kBytes;
  static constexpr int kFragments = How == kPlanes
                                        ? (kMostPlanePixels + kFragmentColumns - 1) / kFragmentColumns
                                    : How == kChannels && Lanes == 64 ? kNeighbours / 2
                                                                      : kNeighbours;
  static constexpr int kWarpPixels = kFragmentColumns * kFragments;
  static constexpr int kColumns =
      Tile::kWarpColumns * (How == kPlanes ? 1 : kWarpPixels);  // pixels, or images
  static constexpr int kStageDepth = Tile::kStageSteps * step_depth(Kind);
  // Elements between rows, spread over the banks: of pixels, 16 bytes more; of channels an odd number of 64
  // bytes, so that two neighbouring pixels take all banks.
  // Four shifted channels lie eight banks apart, and up to three more.
  static constexpr int kPitch = How == kChannels
                                    ? kStageDepth + (Tile::kStageSteps % 4 == 0 ? 64 / kBytes : 0)
                                : How == kShifted ? kColumns + 8
                                                  : kColumns + 16 / kBytes;
  // Between the rows of results that are written by elements: lanes' 16 bytes of two rows, or words of four,
  // lie in different banks.
  static constexpr int kResultPitch = kColumns + (How == kShifted ? 8 : 64 / kBytes);
  static constexpr int kFilterBytes = Tile::kRowTiles * Tile::kStageSteps * 512 * kParts;
  static constexpr int kSums = 4 * Tile::kRowsEach * kFragments;  // a thread

  static constexpr int64_t source_bytes(int64_t plane) {
    if (How != kPlanes) {
      return static_cast<int64_t>(How == kChannels ? kColumns : kStageDepth) * kPitch * kBytes;
    }
    // The last columns of fragments reach past a plane, whose pixels are dropped.
    return (Tile::kWarpColumns * kStageDepth * plane * kBytes + kMostPlanePixels * 2 * kBytes + 15) / 16 * 16;
  }
  static constexpr int64_t exchange_bytes() {
    return Tile::kWarpDepths > 1 ? static_cast<int64_t>(Tile::kWarps) * kSums * Lanes * 4 : 0;
  }
  // Of a block that makes some column tiles.
  static constexpr int64_t shared_bytes(int64_t plane, int64_t steps, int64_t column_tiles,
                                        bool filters_stay) {
    const int64_t chunks = (steps + Tile::kStageSteps - 1) / Tile::kStageSteps, loads = chunks * column_tiles;
    const int64_t stages =
        (loads < kStages ? loads : kStages) * (source_bytes(plane) + (filters_stay ? 0 : kFilterBytes)) +
        (filters_stay ? chunks * kFilterBytes : 0);
    const int64_t staged = How == kPlanes                        ? Tile::kWarpColumns * Tile::kRows * plane
                           : How == kElements || How == kShifted ? Tile::kRows * kResultPitch
                                                                 : 0;
    const int64_t results = exchange_bytes() + staged * kBytes;
    return stages > results ? stages : results;
  }
};

// Whether blocks go from one column tile to the next, loading its first stages while they finish the last:
// where nothing but stages needs shared memory. Waves of 64 lanes have too few scalar registers for it.
template <int Lanes, Access How, class Tile>
constexpr bool kPersistent = Lanes == 32 && (How == kRows || How == kShortRows) && Tile::kWarpDepths == 1;

constexpr int kRegisters = 65536;  // of a multiprocessor, as launch bounds count them

// Blocks of a multiprocessor that leave a thread the registers of its sums, and those that addresses and
// operands take beside them.
template <Precision Kind, int Lanes, Access How, class Tile>
constexpr int blocks_by_registers(int more) {
  using Size = Sizes<Kind, Lanes, How, Tile>;
  const int others = How == kChannels   ? (element_bytes(Kind) == 2 ? 144 : 112)
                     : How == kElements ? 96
                     : Kind == kSplit   ? (Size::kSums >= 56 ? 124 : 92)
                     : Kind == kTf32    ? 72
                                        : 64;
  const int registers = Size::kSums + others + more;
  const int blocks = kRegisters / (Size::kThreads * (registers > 255 ? 255 : registers));
  return blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
}

// Fragments of channels of a group; float32 planes take them four at a time, rows of channels two.
constexpr int64_t steps_of(Precision precision, Access access, int64_t depth) {
  const int64_t steps = (depth + step_depth(precision) - 1) / step_depth(precision);
  if (access == kChannels) return (steps + 1) / 2 * 2;
  return access == kPlanes && element_bytes(precision) == 4 ? (steps + 3) / 4 * 4 : steps;
}

// Fragments of 16 filters of a group; two of them share 32 neighbouring filters where channels are last.
constexpr int64_t row_tiles_of(Access access, int64_t rows) {
  return access == kChannels ? (rows + 31) / 32 * 2 : (rows + 15) / 16;
}

// Calls body(Tile()) for the tile of an index; false where there is none. Of about sixty tiles for each
// precision, these are what P1-P45 at batch 1, 8 and 64 and cuConv's 1x1 layers at 1, 8 and 32 need on an
// H200: the best of them takes 0 to 2 % longer than the best of all, on average.
template <Precision Kind, Access How, class Body>
constexpr bool with_tile(int index, const Body& body) {
  constexpr bool kHalf = element_bytes(Kind) == 2;
#define CONVX_TILE(number, ...) \
  case number:                  \
    return body(Tile<__VA_ARGS__>()), true;
  if constexpr (kHalf && How == kRows) {
    switch (index) {
      CONVX_TILE(0, 2, 1, 4, 1, 2, 4)
      CONVX_TILE(1, 3, 1, 2, 1, 1, 6)
      CONVX_TILE(2, 1, 1, 1, 4, 1, 4)
      CONVX_TILE(3, 3, 2, 2, 1, 2, 4)
      CONVX_TILE(4, 4, 2, 2, 1, 2, 4)
      CONVX_TILE(5, 4, 1, 1, 4, 1, 4)
    }
  } else if constexpr (kHalf && How == kShortRows) {
    switch (index) {
      CONVX_TILE(0, 3, 2, 3, 2, 2, 4)
      CONVX_TILE(1, 1, 1, 1, 8, 1, 4)
      CONVX_TILE(2, 2, 1, 1, 8, 1, 4)
      CONVX_TILE(3, 4, 1, 2, 4, 1, 4)
      CONVX_TILE(4, 3, 1, 1, 8, 1, 4)
      CONVX_TILE(5, 4, 2, 3, 1, 4, 3)
    }
  } else if constexpr (kHalf && How == kPlanes) {
    switch (index) {
      CONVX_TILE(0, 5, 1, 1, 4, 1, 6)
      CONVX_TILE(1, 5, 2, 2, 1, 2, 4)
      CONVX_TILE(2, 2, 1, 1, 8, 1, 4)
      CONVX_TILE(3, 1, 1, 1, 12, 2, 4)
    }
  } else if constexpr (How == kRows) {
    switch (index) {
      CONVX_TILE(0, 3, 1, 4, 1, 4, 3)
      CONVX_TILE(1, 2, 1, 4, 1, 4, 3)
      CONVX_TILE(2, 3, 2, 3, 2, 2, 4)
      CONVX_TILE(3, Kind == kSplit ? 3 : 4, Kind == kSplit ? 1 : 2, Kind == kSplit ? 4 : 2, 1,
                 Kind == kSplit ? 2 : 4, Kind == kSplit ? 4 : 3)
      CONVX_TILE(4, 2, 1, 1, 4, 2, 4)
      CONVX_TILE(5, 1, 1, 1, 8, 1, 4)
      CONVX_TILE(6, 2, 1, 1, 8, 1, 4)
    }
  } else if constexpr (How == kPlanes) {
    switch (index) {
      CONVX_TILE(0, Kind == kSplit ? 3 : 5, 1, 2, 4, 2, 3)
      CONVX_TILE(1, Kind == kSplit ? 2 : 5, 2, 2, 1, 4, 3)
      CONVX_TILE(2, 2, 1, 1, 8, 1, 4)
      CONVX_TILE(3, 1, 1, 1, 8, 1, 6)
      CONVX_TILE(4, 1, 1, 1, 8, 2, 4)
    }
  } else if constexpr (How == kChannels) {
    switch (index) {
      CONVX_TILE(0, 4, 1, kHalf ? 2 : 4, 1, 2, 4)
      CONVX_TILE(1, 2, 1, kHalf ? 2 : 4, 1, 2, 4)
      CONVX_TILE(2, 2, 1, 1, 4, 2, 4)
      CONVX_TILE(3, 2, 2, 1, 2, 2, 4)
      CONVX_TILE(4, 2, 1, 1, 8, 2, 3)
    }
  } else if constexpr (!kHalf && How == kShifted) {
    // The fewest whose best takes under 0.5 % longer than the best of ten.
    switch (index) {
      CONVX_TILE(0, 2, 1, 4, 1, 4, 3)
      CONVX_TILE(1, 3, 2, 2, 1, 4, 3)
      CONVX_TILE(2, 2, 2, 2, 1, 4, 3)
      CONVX_TILE(3, 1, 1, 4, 1, 2, 4)
      CONVX_TILE(4, Kind == kSplit ? 2 : 3, 1, Kind == kSplit ? 2 : 4, Kind == kSplit ? 2 : 1,
                 Kind == kSplit ? 2 : 4, Kind == kSplit ? 4 : 3)
      CONVX_TILE(5, 2, 1, 1, Kind == kSplit ? 8 : 4, Kind == kSplit ? 1 : 2, 4)
      CONVX_TILE(6, Kind == kSplit ? 1 : 4, 1, Kind == kSplit ? 1 : 4, Kind == kSplit ? 8 : 1,
                 Kind == kSplit ? 1 : 2, Kind == kSplit ? 4 : 3)
    }
  } else if constexpr (kHalf && How == kElements) {
    switch (index) {
      CONVX_TILE(0, 3, 1, 4, 1, 2, 3)
      CONVX_TILE(1, 3, 1, 1, 4, 2, 3)
      CONVX_TILE(2, 2, 1, 1, 8, 1, 3)
    }
  } else if constexpr (How == kElements) {
    switch (index) {
      CONVX_TILE(0, Kind == kSplit ? 3 : 4, 1, Kind == kSplit ? 4 : 2, Kind == kSplit ? 1 : 4,
                 Kind == kSplit ? 4 : 1, 3)
      CONVX_TILE(1, 1, 1, 1, 4, 2, 3)
      CONVX_TILE(2, 2, 1, 1, 8, 1, 3)
    }
  }
#undef CONVX_TILE
  return false;
}

}  // namespace convx::pointwise::tensor
