// Whole images as they lie, the channels of each one after the other.
#pragma once
#include "methods/pointwise/tensor/copy_filters.cuh"
#include "platform/gpu/stage.h"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kPlanes, Tile> : public FilterCopies<Kind, Lanes, kPlanes, Tile> {
 public:
  using Filters = FilterCopies<Kind, Lanes, kPlanes, Tile>;
  using Filters::kPieces, Filters::kThreads, Filters::row_tile;
  using typename Filters::Size;
  using typename Filters::T;

  CONVX_DEVICE SourceCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Filters(filters, source, shape) {
    source_ += this->group_offset();
    begin_source(this->column_tile);
  }

  CONVX_DEVICE void begin_source(uint32_t column) {
    ahead_column_ = column;
    const uint32_t image = column * Tile::kWarpColumns;
    source_ += image * shape_.source.counted.image_stride;
    const int left = shape_.images - static_cast<int>(image);
    images_left_ = left < Tile::kWarpColumns ? left : Tile::kWarpColumns;
  }

  using Filters::load_filters;
  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const T* const source = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const int left = shape_.depth - chunk * Size::kStageDepth;
    // Channels of an image lie one after the other: contiguous bytes, in pieces of 16.
    constexpr int kPiece = 16 / Size::kBytes;
    const int image_pieces = Size::kStageDepth * shape_.plane / kPiece;
    const int pieces_left = left * shape_.plane / kPiece;
    CONVX_UNROLL
    for (int image = 0; image < Tile::kWarpColumns; ++image) {
      const T* const from = source + image * shape_.source.counted.image_stride;
      CONVX_NO_UNROLL
      for (int piece = thread_; piece < image_pieces; piece += kThreads) {
        copy_elements<kPiece>(stage + (image * image_pieces + piece) * kPiece, from + piece * kPiece,
                              image < images_left_ && piece < pieces_left);
      }
    }
  }

  // Both at once, by one thread, where images and packed filters are contiguous. Row tiles beyond the last
  // and images beyond the batch are others again: what is made of them is not stored.
  template <int Stages>
  CONVX_DEVICE void load_filters(BlockStages<Stages>& stages, int number, unsigned char* stage, int chunk) {
    constexpr int kTilePieces = Tile::kStageSteps * kPieces;
    const int left = (shape_.steps - chunk * Tile::kStageSteps) * kPieces;
    const uint32_t bytes = (left < kTilePieces ? left : kTilePieces) * 16;
    const int last = shape_.m_tiles - row_tile * Tile::kRowTiles - 1;
    stages.begin(number, bytes * Tile::kRowTiles + image_bytes(chunk) * Tile::kWarpColumns);
    const uint32_t* const from = filters_ + chunk * (kTilePieces * 4);
    CONVX_NO_UNROLL
    for (int tile = 0; tile < Tile::kRowTiles; ++tile) {
      stages.load(number, stage + tile * kTilePieces * 16,
                  from + static_cast<int64_t>(tile < last ? tile : last) * shape_.steps * (kPieces * 4),
                  bytes);
    }
  }
  template <int Stages>
  CONVX_DEVICE void load_source(BlockStages<Stages>& stages, int number, T* stage, int chunk) {
    const T* const from = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const uint32_t bytes = image_bytes(chunk);
    CONVX_UNROLL
    for (int image = 0; image < Tile::kWarpColumns; ++image) {
      stages.load(number, stage + image * Size::kStageDepth * shape_.plane,
                  from + (image < images_left_ ? image : 0) * shape_.source.counted.image_stride, bytes);
    }
  }
  // The last stage's channels beyond the last, that its steps read; every thread.
  CONVX_DEVICE void clear_rest(T* stage, int chunk) {
    const int first = shape_.depth - chunk * Size::kStageDepth;
    const int read = (shape_.steps - chunk * Tile::kStageSteps) * step_depth(Kind);
    const int end = (read < Size::kStageDepth ? read : Size::kStageDepth) * shape_.plane;
    if (first * shape_.plane >= end) return;
    CONVX_UNROLL
    for (int image = 0; image < Tile::kWarpColumns; ++image) {
      T* const to = stage + image * Size::kStageDepth * shape_.plane;
      CONVX_NO_UNROLL
      for (int i = first * shape_.plane + thread_; i < end; i += kThreads) to[i] = T{};
    }
  }

 protected:
  using Filters::ahead_column_, Filters::filters_, Filters::images_left_, Filters::shape_, Filters::source_,
      Filters::thread_;

 private:
  // Of a stage's channels of an image, which lie one after the other.
  CONVX_DEVICE uint32_t image_bytes(int chunk) const {
    const int left = shape_.depth - chunk * Size::kStageDepth;
    return (left < Size::kStageDepth ? left : Size::kStageDepth) * shape_.plane * Size::kBytes;
  }
};

}  // namespace convx::pointwise::tensor
