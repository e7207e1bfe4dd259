// How filters and pixels come to a block's stages of shared memory, a part of the channels at a time.
#pragma once
#include "methods/pointwise/copy.cuh"
#include "methods/pointwise/pixel_map.cuh"
#include "methods/pointwise/tensor/slots.cuh"
#include "platform/mma.h"
#include "platform/warp.h"

namespace convx::pointwise::tensor {

template <Precision Kind>
struct Types {
  using Element = float;
  using Product = tf32;
};
template <>
struct Types<kBfloat16> {
  using Element = bfloat16;
  using Product = bfloat16;
};
template <>
struct Types<kFloat16> {
  using Element = float16;
  using Product = float16;
};

struct Shape {
  int rows, depth;     // filters and channels of a group
  int steps, m_tiles;  // fragments of a group's channels and filters
  int plane;           // pixels of an image of the result
  int images;
  uint32_t row_tiles, column_tiles;
  int source_stage_bytes;
  Access order;                       // of channels, by which the filters were packed
  bool source_pieces, result_pieces;  // of channels: rows allow reads of 16 bytes, stores of a lane's filters
  OtherPixels source;
  OwnPixels result;
  int64_t source_stride, result_stride;  // between channels
  int64_t filter_row, filter_depth;      // of the unpacked filters, for split
  Activation activation;
};

template <Precision Kind, int Lanes, Access How, class Tile>
class Copies {
 public:
  using Size = Sizes<Kind, Lanes, How, Tile>;
  using T = typename Types<Kind>::Element;
  static constexpr int kThreads = Size::kThreads;
  static constexpr int kPieces = 32 * Size::kParts;  // of 16 bytes in a fragment
  static constexpr int kNeighbours = Size::kNeighbours;

  CONVX_DEVICE Copies(const uint32_t* filters, const T* source, const Shape& shape)
      : shape_(shape), thread_(threadIdx.x) {
    const uint32_t rest = blockIdx.x / shape.row_tiles;
    row_tile = static_cast<int>(blockIdx.x - rest * shape.row_tiles);
    group = rest / shape.column_tiles;
    column_tile = rest - group * shape.column_tiles;
    filters_ = filters + (static_cast<int64_t>(group) * shape.m_tiles + row_tile * Tile::kRowTiles) *
                             shape.steps * (kPieces * 4);
    source_ = source + static_cast<int64_t>(group) * shape.depth * shape.source_stride;
    begin_filters();
    begin_source();
    keep_per_lane(channels_left_);
    keep_per_lane(filter_pieces_left_);
    keep_per_lane(row_tile);
    keep_per_lane(column_tile);
  }

  // The next channels' filters to a stage.
  CONVX_DEVICE void load_filters(unsigned char* stage) {
    CONVX_UNROLL
    for (int i = 0; i < kFilterCopies; ++i) {
      const int piece = thread_ + i * kThreads;
      if (kFilterPieces % kThreads != 0 && piece >= kFilterPieces) continue;
      const int within = piece % (Tile::kStageSteps * kPieces);
      copy_elements<4>(reinterpret_cast<uint32_t*>(stage) + piece * 4, filters_ + filter_offset_[i] * 4LL,
                       filter_offset_[i] >= 0 && within < filter_pieces_left_);
    }
    filters_ += Tile::kStageSteps * kPieces * 4;
    filter_pieces_left_ -= Tile::kStageSteps * kPieces;
  }

  // And their pixels.
  CONVX_DEVICE void load_source(T* stage) {
    if constexpr (How == kChannels) {
      load_channels(stage);
    } else if constexpr (How == kPlanes) {
      // Channels of an image lie one after the other: contiguous bytes, in pieces of 16.
      constexpr int kPiece = 16 / Size::kBytes;
      const int image_pieces = Size::kStageDepth * shape_.plane / kPiece;
      const int left = channels_left_ * shape_.plane / kPiece;
      CONVX_UNROLL
      for (int image = 0; image < Tile::kWarpColumns; ++image) {
        const T* const from = source_ + image * shape_.source.counted.image_stride;
        CONVX_NO_UNROLL
        for (int piece = thread_; piece < image_pieces; piece += kThreads) {
          copy_elements<kPiece>(stage + (image * image_pieces + piece) * kPiece, from + piece * kPiece,
                                image < images_left_ && piece < left);
        }
      }
    } else {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        const int column = (thread_ % kColumnPieces + j * kThreads) * kCopied;
        const int first = thread_ / kColumnPieces;
        if constexpr (How == kElements) {
          load_elements(stage + column, pixel_[j], first);
        } else {
          const T* from = source_ + pixel_[j] + first * shape_.source_stride;
          CONVX_UNROLL
          for (int i = 0; i < (Size::kStageDepth + kChannelStep - 1) / kChannelStep; ++i) {
            const int row = first + i * kChannelStep;
            if (Size::kStageDepth % kChannelStep != 0 && row >= Size::kStageDepth) continue;
            copy_elements<kCopied>(stage + row * Size::kPitch + column, from,
                                   pixel_[j] >= 0 && row < channels_left_);
            from += kChannelStep * shape_.source_stride;
          }
        }
      }
    }
    source_ += Size::kStageDepth * shape_.source_stride;
    channels_left_ -= Size::kStageDepth;
  }

  int row_tile;
  uint32_t column_tile, group;

 protected:
  const Shape& shape_;
  int thread_;

 private:
  static constexpr int kFilterPieces = Tile::kRowTiles * Tile::kStageSteps * kPieces;
  static constexpr int kFilterCopies = (kFilterPieces + kThreads - 1) / kThreads;
  // A thread copies the same pixels of every channel.
  static constexpr int kCopied = How == kElements ? 1 : kNeighbours;
  static constexpr int kColumnPieces = How == kPlanes ? 1 : Size::kColumns / kCopied;
  // Pieces of a row of channels, of which a thread copies the same one of some pixels.
  static constexpr int kRowPieces = 2 * Tile::kStageSteps, kPixelStep = kThreads / kRowPieces;
  static constexpr int kColumnsEach = How == kChannels           ? Size::kColumns / kPixelStep
                                      : kColumnPieces > kThreads ? kColumnPieces / kThreads
                                                                 : 1;
  static constexpr int kChannelStep = kThreads > kColumnPieces ? kThreads / kColumnPieces : 1;
  static_assert(How == kChannels
                    ? kThreads % kRowPieces == 0 && Size::kColumns % kPixelStep == 0
                    : How == kPlanes || kThreads % kColumnPieces == 0 || kColumnPieces % kThreads == 0,
                "threads divide the columns");

  CONVX_DEVICE void begin_filters() {
    filter_pieces_left_ = shape_.steps * kPieces;
    CONVX_UNROLL
    for (int i = 0; i < kFilterCopies; ++i) {
      const int piece = thread_ + i * kThreads;
      const int tile = piece / (Tile::kStageSteps * kPieces), within = piece % (Tile::kStageSteps * kPieces);
      const bool there = row_tile * Tile::kRowTiles + tile < shape_.m_tiles;
      filter_offset_[i] = there ? tile * shape_.steps * kPieces + within : -1;
    }
  }

  CONVX_DEVICE void begin_source() {
    channels_left_ = shape_.depth;
    if constexpr (How == kPlanes) {
      const uint32_t image = column_tile * Tile::kWarpColumns;
      source_ += image * shape_.source.counted.image_stride;
      const int left = shape_.images - static_cast<int>(image);
      images_left_ = left < Tile::kWarpColumns ? left : Tile::kWarpColumns;
    } else if constexpr (How == kChannels) {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        pixel_[j] = shape_.source.offset(pixel_of_copy(j));
      }
    } else {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        const uint32_t pixel =
            column_tile * Size::kColumns + (thread_ % kColumnPieces + j * kThreads) * kCopied;
        pixel_[j] = How == kElements ? shape_.source.offset(pixel) : shape_.source.counted.offset(pixel);
      }
    }
  }

  CONVX_DEVICE uint32_t pixel_of_copy(int j) const {
    return column_tile * Size::kColumns + thread_ / kRowPieces + j * kPixelStep;
  }

  CONVX_DEVICE void load_channels(T* stage) {
    constexpr int kPiece = 16 / Size::kBytes;
    const int first = thread_ % kRowPieces * kPiece;
    T* const to = stage + thread_ / kRowPieces * Size::kPitch + first;
    if (shape_.source_pieces) {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        copy_elements<kPiece>(to + j * kPixelStep * Size::kPitch, source_ + pixel_[j] + first,
                              pixel_[j] >= 0 && first < channels_left_);
      }
      return;
    }
    // Rows that do not begin at multiples of 16 bytes: a short loop, which finds its pixels again.
    CONVX_NO_UNROLL
    for (int i = 0; i < kColumnsEach * kPiece; ++i) {
      const int j = i / kPiece, element = i % kPiece;
      const int64_t pixel = shape_.source.offset(pixel_of_copy(j));
      copy_elements<1>(to + j * kPixelStep * Size::kPitch + element, source_ + pixel + first + element,
                       pixel >= 0 && first + element < channels_left_);
    }
  }

  // Eight at once are in flight.
  CONVX_DEVICE void load_elements(T* stage, int64_t pixel, int first) {
    constexpr int kFlight = 8 * kChannelStep;
    static_assert(Size::kStageDepth % kFlight == 0, "whole flights");
    CONVX_NO_UNROLL
    for (int begin = 0; begin < Size::kStageDepth; begin += kFlight) {
      CONVX_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = begin + first + i * kChannelStep, channel = channel_of_row(row);
        copy_elements<1>(stage + row * Size::kPitch, source_ + pixel + channel * shape_.source_stride,
                         pixel >= 0 && channel < channels_left_);
      }
    }
  }

  // Elements are laid out by slots: the filters may have been packed for another access.
  CONVX_DEVICE int channel_of_row(int row) const {
    constexpr int kStep = step_depth(Kind);
    const int within = row % kStep;
    return channel_of_slot<Size::kBytes>(shape_.order, row / kStep, within % 4, within / 4);
  }

  const uint32_t* filters_;
  const T* source_;
  int filter_pieces_left_, channels_left_, images_left_ = 0;
  int filter_offset_[kFilterCopies];
  int64_t pixel_[kColumnsEach] = {};
};

}  // namespace convx::pointwise::tensor
