// Rows of [channel][pixels], copied 16 bytes at a time, or 8 where they are short.
#pragma once
#include "methods/pointwise/tensor/copy_filters.cuh"

namespace convx::pointwise::tensor {

// How threads share out the pixels of a tile, Copied neighbours at a time.
template <class Size, int Copied>
struct ColumnShares {
  static constexpr int kThreads = Size::kThreads, kPieces = Size::kColumns / Copied;
  static constexpr int kEach = kPieces > kThreads ? kPieces / kThreads : 1;
  static constexpr int kChannelStep = kThreads > kPieces ? kThreads / kPieces : 1;
  static_assert(kThreads % kPieces == 0 || kPieces % kThreads == 0, "threads divide the columns");
};

// A thread copies the same pixels of every channel.
template <Precision Kind, int Lanes, Access How, class Tile, int Copied>
class ColumnCopies : public FilterCopies<Kind, Lanes, How, Tile,
                                         ColumnShares<Sizes<Kind, Lanes, How, Tile>, Copied>::kEach> {
 public:
  using Shares = ColumnShares<Sizes<Kind, Lanes, How, Tile>, Copied>;
  using Filters = FilterCopies<Kind, Lanes, How, Tile, Shares::kEach>;
  using typename Filters::T;

  CONVX_DEVICE ColumnCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Filters(filters, source, shape) {
    this->source_ += this->group_offset();
  }

 protected:
  static constexpr int kColumnPieces = Shares::kPieces, kColumnsEach = Shares::kEach;
  static constexpr int kChannelStep = Shares::kChannelStep;
};

template <Precision Kind, int Lanes, Access How, class Tile>
class RowCopies : public ColumnCopies<Kind, Lanes, How, Tile, Sizes<Kind, Lanes, How, Tile>::kNeighbours> {
 public:
  using Columns = ColumnCopies<Kind, Lanes, How, Tile, Sizes<Kind, Lanes, How, Tile>::kNeighbours>;
  using Columns::kThreads;
  using typename Columns::Size;
  using typename Columns::T;

  CONVX_DEVICE RowCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Columns(filters, source, shape) {
    begin_source(this->column_tile);
  }

  CONVX_DEVICE void begin_source(uint32_t column) {
    this->ahead_column_ = column;
    CONVX_UNROLL
    for (int j = 0; j < kColumnsEach; ++j) {
      const uint32_t pixel = column * Size::kColumns + (thread_ % kColumnPieces + j * kThreads) * kCopied;
      pixel_[j] = shape_.source.counted.offset(pixel);
    }
  }

  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const T* const source = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const int left = shape_.depth - chunk * Size::kStageDepth;
    const int rows_read = (shape_.steps - chunk * Tile::kStageSteps) * step_depth(Kind);
    uint32_t thread = thread_, stride = static_cast<uint32_t>(shape_.source_stride);
    make_opaque(thread);
    make_opaque(stride);
    const int first = static_cast<int>(thread / kColumnPieces);
    CONVX_UNROLL
    for (int j = 0; j < kColumnsEach; ++j) {
      const int column = static_cast<int>(thread % kColumnPieces + j * kThreads) * kCopied;
      const T* from = source + pixel_[j] + static_cast<int64_t>(first) * stride;
      T* const to = stage + first * Size::kPitch + column;
      constexpr int kCopies = (Size::kStageDepth + kChannelStep - 1) / kChannelStep;
      if (Size::kStageDepth % kChannelStep == 0 && left >= Size::kStageDepth) {
        CONVX_UNROLL
        for (int i = 0; i < kCopies; ++i, from += static_cast<int64_t>(kChannelStep) * stride) {
          copy_elements<kCopied>(to + i * kChannelStep * Size::kPitch, from, pixel_[j] >= 0);
        }
      } else {
        CONVX_UNROLL
        for (int i = 0; i < kCopies; ++i, from += static_cast<int64_t>(kChannelStep) * stride) {
          const int row = first + i * kChannelStep;
          if (row >= Size::kStageDepth || row >= rows_read) continue;
          copy_elements<kCopied>(to + i * kChannelStep * Size::kPitch, from, pixel_[j] >= 0 && row < left);
        }
      }
    }
  }

 protected:
  using Columns::kChannelStep, Columns::kColumnPieces, Columns::kColumnsEach;
  using Columns::pixel_, Columns::shape_, Columns::source_, Columns::thread_;

 private:
  static constexpr int kCopied = Size::kNeighbours;
};

template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kRows, Tile> : public RowCopies<Kind, Lanes, kRows, Tile> {
 public:
  using RowCopies<Kind, Lanes, kRows, Tile>::RowCopies;
};
template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kShortRows, Tile> : public RowCopies<Kind, Lanes, kShortRows, Tile> {
 public:
  using RowCopies<Kind, Lanes, kShortRows, Tile>::RowCopies;
};

}  // namespace convx::pointwise::tensor
