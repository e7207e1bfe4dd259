// How filters and pixels come to a block's stages of shared memory, a part of the channels at a time.
#pragma once
#include "methods/matrix/types.cuh"
#include "methods/pointwise/copy.cuh"
#include "methods/pointwise/pixel_map.cuh"
#include "methods/pointwise/tensor/slots.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/stage.h"
#include "platform/gpu/warp.h"

namespace convx::pointwise::tensor {

using matrix::Types;

struct Shape {
  int rows, depth;     // filters and channels of a group
  int steps, m_tiles;  // fragments of a group's channels and filters
  int plane;           // pixels of an image of the result
  int images;
  FastDivide row_tiles, row_tiles_of_groups;  // of a group, and of all
  uint32_t column_tiles, column_blocks;       // blocks share out the columns of a row of tiles
  uint32_t image_tiles;                       // of shifted rows: column tiles of an image
  int64_t source_elements;                    // of shifted rows: of the tensor, none beyond is read
  int source_stage_bytes;
  bool filters_stay;                  // in shared memory, while a block goes from tile to tile
  Access order;                       // of channels, by which the filters were packed
  bool source_pieces, result_pieces;  // of channels: rows allow reads of 16 bytes, stores of a lane's filters
  OtherPixels source;
  OwnPixels result;
  int64_t source_stride, result_stride;  // between channels
  int64_t filter_row, filter_depth;      // of the unpacked filters, for split
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
    // Neighbouring blocks take the same pixels.
    const uint32_t column = shape.row_tiles_of_groups.quotient(blockIdx.x);
    const uint32_t rest = blockIdx.x - column * shape.row_tiles_of_groups.divisor;
    group = shape.row_tiles.quotient(rest);
    row_tile = static_cast<int>(rest - group * shape.row_tiles.divisor);
    column_tile = column;
    filters_ = filters + (static_cast<int64_t>(group) * shape.m_tiles + row_tile * Tile::kRowTiles) *
                             shape.steps * (kPieces * 4);
    source_ = source;
    if constexpr (How != kShifted) source_ += group_offset();
    begin_source(column_tile);
    keep_per_lane(row_tile);
    keep_per_lane(column_tile);
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

  // And its pixels, of the column tile that begin_source() named last.
  CONVX_DEVICE void load_source(T* stage, int chunk) {
    const T* const source = source_ + chunk * Size::kStageDepth * shape_.source_stride;
    const int left = shape_.depth - chunk * Size::kStageDepth;
    if constexpr (How == kChannels) {
      load_channels(stage, source, left);
    } else if constexpr (How == kShifted) {
      load_shifted(stage, chunk * Size::kStageDepth);
    } else if constexpr (How == kPlanes) {
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
    } else {
      const int rows_read = (shape_.steps - chunk * Tile::kStageSteps) * step_depth(Kind);
      uint32_t thread = thread_, stride = static_cast<uint32_t>(shape_.source_stride);
      make_opaque(thread);
      make_opaque(stride);
      const int first = static_cast<int>(thread / kColumnPieces);
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        const int column = static_cast<int>(thread % kColumnPieces + j * kThreads) * kCopied;
        if constexpr (How == kElements) {
          load_elements(stage + column, source + pixel_[j], pixel_[j] >= 0 ? left : 0, first);
        } else {
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
              copy_elements<kCopied>(to + i * kChannelStep * Size::kPitch, from,
                                     pixel_[j] >= 0 && row < left);
            }
          }
        }
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

  CONVX_DEVICE void begin_source(uint32_t column) {
    ahead_column_ = column;
    if constexpr (How == kPlanes) {
      const uint32_t image = column * Tile::kWarpColumns;
      source_ += image * shape_.source.counted.image_stride;
      const int left = shape_.images - static_cast<int>(image);
      images_left_ = left < Tile::kWarpColumns ? left : Tile::kWarpColumns;
    } else if constexpr (How == kShifted) {
      const uint32_t image = column / shape_.image_tiles;
      first_in_image_ = (column - image * shape_.image_tiles) * Size::kColumns;
      first_of_tile_ = image * shape_.plane + first_in_image_;
      begin_ = group_offset() + image * shape_.source.counted.image_stride + first_in_image_;
    } else if constexpr (How == kChannels) {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) pixel_[j] = shape_.source.offset(pixel_of_copy(column, j));
    } else {
      CONVX_UNROLL
      for (int j = 0; j < kColumnsEach; ++j) {
        const uint32_t pixel = column * Size::kColumns + (thread_ % kColumnPieces + j * kThreads) * kCopied;
        pixel_[j] = How == kElements ? shape_.source.offset(pixel) : shape_.source.counted.offset(pixel);
      }
    }
  }

  // The column tile's first pixel in all images; How is not kPlanes.
  CONVX_DEVICE uint32_t first_of_tile() const {
    return How == kShifted ? first_of_tile_ : column_tile * Size::kColumns;
  }
  // Of shifted rows: how many pixels of the image are left from there on.
  CONVX_DEVICE int pixels_left() const { return shape_.plane - static_cast<int>(first_in_image_); }
  // How many elements behind a piece of 16 bytes a channel begins: the same for channels that are 4 apart, so
  // one number for a slot.
  CONVX_DEVICE int shift_of(int channel) const {
    return static_cast<int>((begin_ + channel * shape_.source_stride) & 3);
  }

  int row_tile;
  uint32_t column_tile, group;

 protected:
  const Shape& shape_;
  int thread_;
  uint32_t ahead_column_;  // the column tile whose pixels are loaded

 private:
  static constexpr int kFilterPieces = Tile::kRowTiles * Tile::kStageSteps * kPieces;
  static constexpr int kFilterCopies = (kFilterPieces + kThreads - 1) / kThreads;
  // A thread copies the same pixels of every channel.
  static constexpr int kCopied = How == kElements ? 1 : kNeighbours;
  static constexpr int kColumnPieces = How == kPlanes || How == kShifted ? 1 : Size::kColumns / kCopied;
  // Pieces of a row of channels, of which a thread copies the same one of some pixels.
  static constexpr int kRowPieces = 2 * Tile::kStageSteps, kPixelStep = kThreads / kRowPieces;
  static constexpr int kColumnsEach = How == kChannels           ? Size::kColumns / kPixelStep
                                      : kColumnPieces > kThreads ? kColumnPieces / kThreads
                                                                 : 1;
  static constexpr int kChannelStep = kThreads > kColumnPieces ? kThreads / kColumnPieces : 1;
  static_assert(How == kChannels ? kThreads % kRowPieces == 0 && Size::kColumns % kPixelStep == 0
                                 : How == kPlanes || How == kShifted || kThreads % kColumnPieces == 0 ||
                                       kColumnPieces % kThreads == 0,
                "threads divide the columns");

  // Of a stage's channels of an image, which lie one after the other.
  CONVX_DEVICE uint32_t image_bytes(int chunk) const {
    const int left = shape_.depth - chunk * Size::kStageDepth;
    return (left < Size::kStageDepth ? left : Size::kStageDepth) * shape_.plane * Size::kBytes;
  }

  CONVX_DEVICE int64_t group_offset() const {
    return static_cast<int64_t>(group) * shape_.depth * shape_.source_stride;
  }

  CONVX_DEVICE static uint32_t pixel_of_copy(uint32_t column, int j) {
    return column * Size::kColumns + threadIdx.x / kRowPieces + j * kPixelStep;
  }

  CONVX_DEVICE void load_channels(T* stage, const T* source, int left) {
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

  // The pieces that a tile's pixels of a stage's channels lie in; of channels beyond the last, zeros. A piece
  // may hold pixels of other images and channels, that make results which are not stored.
  CONVX_DEVICE void load_shifted(T* stage, int first_channel) {
    constexpr int kRowPieces = Size::kColumns / 4, kStep = kThreads / kRowPieces;
    static_assert(kThreads % kRowPieces == 0 && kStep % 4 == 0, "a thread's channels have one shift");
    static_assert(sizeof(T) == 4 && Size::kStageDepth <= kThreads,
                  "four elements a piece, a last one a thread");
    const int width = pixels_left() < Size::kColumns ? pixels_left() : Size::kColumns;
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

  const uint32_t* filters_;
  const T* source_;
  int images_left_ = 0;
  int64_t begin_ = 0;  // of shifted rows: the tile's first pixel of the group's first channel
  uint32_t first_in_image_ = 0, first_of_tile_ = 0;
  int64_t pixel_[kColumnsEach] = {};
};

}  // namespace convx::pointwise::tensor
