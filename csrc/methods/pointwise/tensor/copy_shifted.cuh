// Rows of float32 that begin between pieces of 16 bytes: the pieces that they lie in.
#pragma once
#include "methods/pointwise/tensor/copy_filters.cuh"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, class Tile>
class SourceCopies<Kind, Lanes, kShifted, Tile> : public FilterCopies<Kind, Lanes, kShifted, Tile> {
 public:
  using Filters = FilterCopies<Kind, Lanes, kShifted, Tile>;
  using Filters::kThreads;
  using typename Filters::Size;
  using typename Filters::T;

  CONVX_DEVICE SourceCopies(const uint32_t* filters, const T* source, const Shape& shape)
      : Filters(filters, source, shape) {
    begin_source(this->column_tile);
  }

  CONVX_DEVICE void begin_source(uint32_t column) {
    ahead_column_ = column;
    const uint32_t image = column / shape_.image_tiles;
    first_in_image_ = (column - image * shape_.image_tiles) * Size::kColumns;
    first_of_tile_ = image * shape_.plane + first_in_image_;
    begin_ = this->group_offset() + image * shape_.source.counted.image_stride + first_in_image_;
  }

  // The pieces that a tile's pixels of a stage's channels lie in; of channels beyond the last, zeros. A piece
  // may hold pixels of other images and channels, that make results which are not stored.
  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const int first_channel = chunk * Size::kStageDepth;
    constexpr int kRowPieces = Size::kColumns / 4, kStep = kThreads / kRowPieces;
    static_assert(kThreads % kRowPieces == 0 && kStep % 4 == 0, "a thread's channels have one shift");
    static_assert(sizeof(T) == 4 && Size::kStageDepth <= kThreads,
                  "four elements a piece, a last one a thread");
    const int width = this->pixels_left() < Size::kColumns ? this->pixels_left() : Size::kColumns;
    const int channels = shape_.depth - first_channel;
    const int64_t begin = begin_ + first_channel * shape_.source_stride;
    // The tensor may end within its last piece, which goes by elements: what follows them in the stage makes
    // no result that is stored.
    T* cut = nullptr;
    int64_t cut_at = 0;
    const auto copy = [&](int row, int element, int64_t at, bool valid) {
      T* const to = stage + row * Size::kPitch + element;
      if (valid && at + 4 > shape_.source_elements) {
        cut = to;
        cut_at = at;
      } else {
        copy_elements<4>(to, source_ + (valid ? at : 0), valid);
      }
    };
    const int first = thread_ / kRowPieces, element = thread_ % kRowPieces * 4, shift = shift_of(first);
    const bool wanted = element < shift + width;
    int64_t at = begin + first * shape_.source_stride - shift + element;
    CONVX_UNROLL
    for (int i = 0; i < (Size::kStageDepth + kStep - 1) / kStep; ++i) {
      const int row = first + i * kStep;
      if (Size::kStageDepth % kStep != 0 && row >= Size::kStageDepth) break;
      copy(row, element, at, wanted && row < channels);
      at += kStep * shape_.source_stride;
    }
    if (thread_ < Size::kStageDepth) {  // and the piece that most channels end in
      const int last_shift = shift_of(thread_);
      copy(thread_, Size::kColumns, begin + thread_ * shape_.source_stride - last_shift + Size::kColumns,
           Size::kColumns < last_shift + width && thread_ < channels);
    }
    if (cut == nullptr) return;
    CONVX_NO_UNROLL
    for (int i = 0; cut_at + i < shape_.source_elements; ++i) {
      copy_elements<1>(cut + i, source_ + cut_at + i, true);
    }
  }

  // How many elements behind a piece of 16 bytes a channel begins: the same for channels that are 4 apart, so
  // one number for a slot.
  CONVX_DEVICE int shift_of(int channel) const {
    return static_cast<int>((begin_ + channel * shape_.source_stride) & 3);
  }

 protected:
  using Filters::ahead_column_, Filters::begin_, Filters::first_in_image_, Filters::first_of_tile_,
      Filters::shape_, Filters::source_, Filters::thread_;
};

}  // namespace convx::pointwise::tensor
