// Pixels element by element, which any stride and padding allow.
#pragma once
#include "methods/pointwise/tensor/copy_rows.cuh"
#include "methods/pointwise/tensor/slots.cuh"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kElements, Tile> : public ColumnCopies<Kind, Lanes, kElements, Tile, 1> {
 public:
  using Columns = ColumnCopies<Kind, Lanes, kElements, Tile, 1>;
  using Columns::kThreads;
  using typename Columns::Size;
  using typename Columns::T;

  CONVX_DEVICE SourceCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Columns(filters, source, shape) {
    begin_source(this->column_tile);
  }

  CONVX_DEVICE void begin_source(uint32_t column) {
    this->ahead_column_ = column;
    CONVX_UNROLL
    for (int j = 0; j < kColumnsEach; ++j) {
      pixel_[j] = shape_.source.offset(column * Size::kColumns + (thread_ % kColumnPieces + j * kThreads));
    }
  }

  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const T* const source = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const int left = shape_.depth - chunk * Size::kStageDepth;
    uint32_t thread = thread_;
    make_opaque(thread);
    const int first = static_cast<int>(thread / kColumnPieces);
    CONVX_UNROLL
    for (int j = 0; j < kColumnsEach; ++j) {
      const int column = static_cast<int>(thread % kColumnPieces + j * kThreads);
      load_elements(stage + column, source + pixel_[j], pixel_[j] >= 0 ? left : 0, first);
    }
  }

 protected:
  using Columns::kChannelStep, Columns::kColumnPieces, Columns::kColumnsEach;
  using Columns::pixel_, Columns::shape_, Columns::source_, Columns::thread_;

 private:
  // Eight at once are in flight; left channels remain, none beyond the last pixel.
  CONVX_DEVICE void load_elements(T* stage, const T* source, int left, int first) {
    constexpr int kFlight = 8 * kChannelStep;
    static_assert(Size::kStageDepth % kFlight == 0, "whole flights");
    CONVX_NO_UNROLL
    for (int begin = 0; begin < Size::kStageDepth; begin += kFlight) {
      T loaded[8] = {};
      CONVX_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = begin + first + i * kChannelStep, channel = channel_of_row(row);
        const T* const from = source + channel * shape_.source_stride;
        if constexpr (sizeof(T) >= 4) {
          copy_elements<1>(stage + row * Size::kPitch, from, channel < left);
        } else if (channel < left) {
          loaded[i] = load<T, 1>(from).element[0];
        }
      }
      // Two bytes are too few for an asynchronous copy: all are on their way before the first is stored.
      if constexpr (sizeof(T) < 4) {
        CONVX_UNROLL
        for (int i = 0; i < 8; ++i) stage[(begin + first + i * kChannelStep) * Size::kPitch] = loaded[i];
      }
    }
  }

  // Elements are laid out by slots: the filters may have been packed for another access.
  CONVX_DEVICE int channel_of_row(int row) const {
    constexpr int kStep = step_depth(Kind);
    const int within = row % kStep;
    return channel_of_slot<Size::kBytes>(shape_.order, row / kStep, within % 4, within / 4);
  }
};

}  // namespace convx::pointwise::tensor
