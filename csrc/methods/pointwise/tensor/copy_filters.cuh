// How filters come to a block's stages, and where the block's tile lies: what all forms of access share.
#pragma once
#include "methods/matrix/types.cuh"
#include "methods/pointwise/copy.cuh"
#include "methods/pointwise/tensor/shape.cuh"
#include "methods/pointwise/tensor/tiles.h"
#include "platform/gpu/opaque.h"
#include "platform/gpu/warp.h"

namespace convx::pointwise::tensor {

using matrix::Types;

// Pixels: of how many a thread keeps the places, those that it copies of every channel.
template <Precision Kind, int Lanes, Access How, class Tile, int Pixels = 1>
class FilterCopies {
 public:
  using Size = Sizes<Kind, Lanes, How, Tile>;
  using T = typename Types<Kind>::Element;
  static constexpr int kThreads = Size::kThreads;
  static constexpr int kPieces = 32 * Size::kParts;  // of 16 bytes in a fragment

  CONVX_DEVICE FilterCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : shape_(shape), thread_(threadIdx.x), source_(source) {
    // Neighbouring blocks take the same pixels.
    const uint32_t column = shape.row_tiles_of_groups.quotient(blockIdx.x);
    const uint32_t rest = blockIdx.x - column * shape.row_tiles_of_groups.divisor;
    group = shape.row_tiles.quotient(rest);
    row_tile = static_cast<int>(rest - group * shape.row_tiles.divisor);
    column_tile = column;
    filters_ = filters + (static_cast<int64_t>(group) * shape.m_tiles + row_tile * Tile::kRowTiles) *
                             shape.steps * (kPieces * 4);
  }

  // A stage's filters. What belongs to no step is not copied, for no step reads it.
  CONVX_DEVICE void load_filters(unsigned char* stage, int chunk) {
    constexpr int kTilePieces = Tile::kStageSteps * kPieces;
    const uint32_t* const filters = filters_ + chunk * (kTilePieces * 4);
    const int left = (shape_.steps - chunk * Tile::kStageSteps) * kPieces;
    const int tiles = shape_.m_tiles - row_tile * Tile::kRowTiles;
    uint32_t* const to = reinterpret_cast<uint32_t*>(stage);
    // Addresses are found anew for every stage, as registers are dear, and walk from tile to tile.
    uint32_t thread = thread_, tile_words = shape_.steps * kPieces * 4;
    make_opaque(thread);
    make_opaque(tile_words);
    if constexpr (kTilePieces % kThreads == 0) {
      const uint32_t* from = filters + thread * 4;
      CONVX_UNROLL
      for (int tile = 0; tile < Tile::kRowTiles; ++tile, from += tile_words) {
        CONVX_UNROLL
        for (int i = 0; i < kTilePieces / kThreads; ++i) {
          const int within = static_cast<int>(thread) + i * kThreads;
          if (within >= left) continue;
          copy_elements<4>(to + (tile * kTilePieces + within) * 4, from + i * kThreads * 4, tile < tiles);
        }
      }
    } else {
      CONVX_UNROLL
      for (int i = 0; i < kFilterCopies; ++i) {
        const uint32_t piece = thread + i * kThreads;
        const int tile = static_cast<int>(piece / kTilePieces);
        const int within = static_cast<int>(piece % kTilePieces);
        if ((kFilterPieces % kThreads != 0 && piece >= kFilterPieces) || within >= left) continue;
        copy_elements<4>(to + piece * 4, filters + static_cast<int64_t>(tile) * tile_words + within * 4,
                         tile < tiles);
      }
    }
  }

  // The column tile's first pixel in all images, where it is not of whole images.
  CONVX_DEVICE uint32_t first_of_tile() const {
    return Form<How>::kTileInImage ? first_of_tile_ : column_tile * Size::kColumns;
  }
  // Pixels of the image from there on, where a tile is in one image.
  CONVX_DEVICE int pixels_left() const { return shape_.plane - static_cast<int>(first_in_image_); }

  int row_tile;
  uint32_t column_tile, group;

 protected:
  CONVX_DEVICE int64_t group_offset() const {
    return static_cast<int64_t>(group) * shape_.depth * shape_.source_stride;
  }

  const Shape& shape_;
  int thread_;
  uint32_t ahead_column_;  // the column tile whose pixels are loaded
  const uint32_t* filters_;
  const T* source_;
  // What begin_source() found: of whole images, how many of the tile's there are; of tiles in one image,
  // their first pixel of the group's first channel in the tensor, of the image, and of all images; else the
  // pixels' places.
  int images_left_ = 0;
  int64_t begin_ = 0;
  uint32_t first_in_image_ = 0, first_of_tile_ = 0;
  int64_t pixel_[Pixels] = {};

 private:
  static constexpr int kFilterPieces = Tile::kRowTiles * Tile::kStageSteps * kPieces;
  static constexpr int kFilterCopies = (kFilterPieces + kThreads - 1) / kThreads;
};

// The pixels of each form of access, in a file for each: begin_source() names the column tile whose pixels
// load_source() then brings to a stage, a part of the channels at a time.
template <Precision Kind, int Lanes, Access How, class Tile>
class SourceCopies;

}  // namespace convx::pointwise::tensor
