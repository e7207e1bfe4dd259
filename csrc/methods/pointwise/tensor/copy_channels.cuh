// Of channels_last tensors, rows of [pixel][channels].
#pragma once
#include "methods/pointwise/tensor/copy_filters.cuh"

namespace convx::pointwise::tensor {

// Threads share out the pieces of a row of channels, and each copies the same one of some pixels.
template <class Size, class Tile>
struct RowShares {
  static constexpr int kPieces = 2 * Tile::kStageSteps, kPixelStep = Size::kThreads / kPieces;
  static constexpr int kEach = Size::kColumns / kPixelStep;
  static_assert(Size::kThreads % kPieces == 0 && Size::kColumns % kPixelStep == 0,
                "threads divide the columns");
};

template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kChannels, Tile>
    : public FilterCopies<Kind, Lanes, kChannels, Tile,
                          RowShares<Sizes<Kind, Lanes, kChannels, Tile>, Tile>::kEach> {
 public:
  using Shares = RowShares<Sizes<Kind, Lanes, kChannels, Tile>, Tile>;
  using Filters = FilterCopies<Kind, Lanes, kChannels, Tile, Shares::kEach>;
  using Filters::kThreads;
  using typename Filters::Size;
  using typename Filters::T;

  CONVX_DEVICE SourceCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Filters(filters, source, shape) {
    source_ += this->group_offset();
    begin_source(this->column_tile);
  }

  CONVX_DEVICE void begin_source(uint32_t column) {
    ahead_column_ = column;
    CONVX_UNROLL
    for (int j = 0; j < kColumnsEach; ++j) pixel_[j] = shape_.source.offset(pixel_of_copy(column, j));
  }

  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const T* const source = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const int left = shape_.depth - chunk * Size::kStageDepth;
    constexpr int kPiece = 16 / Size::kBytes;
    const int first = thread_ % kRowPieces * kPiece;
    T* const to = stage + thread_ / kRowPieces * Size::kPitch + first;
    if (shape_.source_pieces) {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        copy_elements<kPiece>(to + j * kPixelStep * Size::kPitch, source + pixel_[j] + first,
                              pixel_[j] >= 0 && first < left);
      }
      return;
    }
    // Rows that do not begin at multiples of 16 bytes: a short loop, which finds its pixels again.
    CONVX_NO_UNROLL
    for (int i = 0; i < kColumnsEach * kPiece; ++i) {
      const int j = i / kPiece, element = i % kPiece;
      const int64_t pixel = shape_.source.offset(pixel_of_copy(ahead_column_, j));
      copy_elements<1>(to + j * kPixelStep * Size::kPitch + element, source + pixel + first + element,
                       pixel >= 0 && first + element < left);
    }
  }

 protected:
  using Filters::ahead_column_, Filters::pixel_, Filters::shape_, Filters::source_, Filters::thread_;

 private:
  static constexpr int kRowPieces = Shares::kPieces, kPixelStep = Shares::kPixelStep;
  static constexpr int kColumnsEach = Shares::kEach;

  CONVX_DEVICE static uint32_t pixel_of_copy(uint32_t column, int j) {
    return column * Size::kColumns + threadIdx.x / kRowPieces + j * kPixelStep;
  }
};

}  // namespace convx::pointwise::tensor
