// The tilings that are compiled: what the planner may choose and the launcher has.
#pragma once
#include <cstdint>

#include "methods/pointwise/tensor/access.h"

namespace convx::pointwise::tensor {

// Beside a launch's shared memory: a word of 8 bytes a stage.
constexpr int kBarrierBytes = 128;

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
  using Form = tensor::Form<How>;
  static constexpr int kBytes = element_bytes(Kind), kParts = parts(Kind);
  static constexpr int kFragmentColumns = Lanes / 4;
  static constexpr int kThreads = Lanes * Tile::kWarps;
  static constexpr int kStages = Lanes == 64 ? 2 : Tile::kStages;  // copies are synchronous there
  static constexpr int kNeighbours = Form::neighbours(kBytes);
  static constexpr int kFragments = Form::fragments(kNeighbours, Lanes);
  static constexpr int kWarpPixels = kFragmentColumns * kFragments;
  static constexpr int kColumns =
      Tile::kWarpColumns * (Form::kWholeImages ? 1 : kWarpPixels);  // pixels, or images
  static constexpr int kStageDepth = Tile::kStageSteps * step_depth(Kind);
  static constexpr int kPitch = Form::pitch(kColumns, kStageDepth, Tile::kStageSteps, kBytes);
  static constexpr int kResultPitch = Form::result_pitch(kColumns, kBytes);
  static constexpr int kFilterBytes = Tile::kRowTiles * Tile::kStageSteps * 512 * kParts;
  static constexpr int kSums = 4 * Tile::kRowsEach * kFragments;  // a thread

  static constexpr int64_t source_bytes(int64_t plane) {
    if (!Form::kWholeImages) {
      return static_cast<int64_t>(Form::kPixelRows ? kColumns : kStageDepth) * kPitch * kBytes;
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
    const int64_t staged = Form::kWholeImages     ? Tile::kWarpColumns * Tile::kRows * plane
                           : Form::kStagesResults ? Tile::kRows * kResultPitch
                                                  : 0;
    const int64_t results = exchange_bytes() + staged * kBytes;
    return stages > results ? stages : results;
  }
};

// Whether blocks go from one column tile to the next, loading its first stages while they finish the last:
// where nothing but stages needs shared memory. Waves of 64 lanes have too few scalar registers for it.
template <int Lanes, Access How, class Tile>
constexpr bool kPersistent = Lanes == 32 && Form<How>::kOnlyStages && Tile::kWarpDepths == 1;

constexpr int kRegisters = 65536;  // of a multiprocessor, as launch bounds count them

// Blocks of a multiprocessor that leave a thread its registers.
template <Precision Kind, int Lanes, Access How, class Tile>
constexpr int blocks_by_registers(int more) {
  using Size = Sizes<Kind, Lanes, How, Tile>;
  const int registers = Size::kSums + Form<How>::registers(Kind, Size::kSums) + more;
  const int blocks = kRegisters / (Size::kThreads * (registers > 255 ? 255 : registers));
  return blocks < 1 ? 1 : blocks > 16 ? 16 : blocks;
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
