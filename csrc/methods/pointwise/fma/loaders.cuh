// How a block brings an operand into shared memory, one stage of its depth at a time.
//
// A stage is [rows][depth] where elements of the depth lie one after the other in memory, and [depth][rows]
// where rows do. Elements beyond an operand's end, and padding, are zeros. Pieces are of 16 bytes where the
// launcher found that sizes and addresses allow it, else of one element.
#pragma once
#include "methods/pointwise/copy.cuh"
#include "methods/pointwise/fma/tiles.h"
#include "methods/pointwise/pixel_map.cuh"

namespace convx::pointwise::fma {

template <class T>
constexpr int kDepth = depth_of(sizeof(T));
template <class T>
constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
// Elements between rows of a [rows][depth] stage: the piece more spreads neighbouring rows over the banks.
template <class T>
constexpr int kPitch = kDepth<T> + kPiece<T>;

// [rows][depth]; a row's elements lie one after the other: filters, or pixels of a channels_last tensor.
template <class T, int Rows, int Threads>
class RowLoader {
 public:
  // row_offset(row) tells where a row of the tile begins, kNoPixel where it is zeros.
  template <class RowOffset>
  CONVX_DEVICE RowLoader(const T* source, const RowOffset& row_offset, int depth, bool pieces, int thread)
      : source_(source), depth_(depth), pieces_(pieces), thread_(thread) {
    keep_per_lane(depth_);
    CONVX_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      offset_[i] = row_offset(pieces ? thread / kPieces + i * kStep : thread % Rows);
    }
  }

  CONVX_DEVICE void load(T* stage, int64_t begin) {
    if (pieces_) {
      const int piece = thread_ % kPieces * kPiece<T>;
      CONVX_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        const int row = thread_ / kPieces + i * kStep;
        if (Rows % kStep != 0 && row >= Rows) continue;
        copy_elements<kPiece<T>>(stage + row * kPitch<T> + piece, source_ + offset_[i] + begin + piece,
                                 offset_[i] >= 0 && begin + piece < depth_);
      }
      return;
    }
    // One row, or a part of one, a thread: this has to keep one offset alone.
    static_assert(Threads % Rows == 0, "a thread loads the same row of every stage");
    CONVX_NO_UNROLL
    for (int element = thread_ / Rows; element < kDepth<T>; element += Threads / Rows) {
      copy_elements<1>(stage + thread_ % Rows * kPitch<T> + element, source_ + offset_[0] + begin + element,
                       offset_[0] >= 0 && begin + element < depth_);
    }
  }

 private:
  static constexpr int kPieces = kDepth<T> / kPiece<T>, kStep = Threads / kPieces;
  static constexpr int kCopies = (Rows + kStep - 1) / kStep;

  const T* source_;
  int depth_;
  bool pieces_;
  int thread_;
  int64_t offset_[kCopies] = {};
};

// [depth][pixels] of an nchw tensor: the depth is its channels.
template <class T, int Pixels, int Threads>
class PlaneLoader {
 public:
  CONVX_DEVICE PlaneLoader(const T* source, const OtherPixels& map, uint32_t first_pixel, int channels,
                           int64_t channel_stride, bool pieces, int thread)
      : source_(source),
        channels_(channels),
        channel_stride_(channel_stride),
        pieces_(pieces),
        thread_(thread) {
    keep_per_lane(channels_);
    keep_per_lane(channel_stride_);
    CONVX_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const int pixel = pieces ? thread % kPieces * kPiece<T> : thread % Pixels + i * Threads;
      offset_[i] = map.offset(first_pixel + pixel);
    }
  }

  CONVX_DEVICE void load(T* stage, int64_t begin) {
    if (pieces_) {
      constexpr int kStep = Threads / kPieces;
      load_column<kPiece<T>, kStep>(stage + thread_ % kPieces * kPiece<T>, offset_[0], thread_ / kPieces,
                                    begin);
    } else {
      constexpr int kStep = Threads > Pixels ? Threads / Pixels : 1;
      CONVX_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        load_column<1, kStep>(stage + thread_ % Pixels + i * Threads, offset_[i], thread_ / Pixels, begin);
      }
    }
  }

 private:
  static constexpr int kPieces = Pixels / kPiece<T>;
  static constexpr int kColumns = Pixels > Threads ? Pixels / Threads : 1;
  static_assert(Threads % kPieces == 0 && (Threads % Pixels == 0 || Pixels % Threads == 0),
                "a thread loads the same pixels of every channel");

  template <int Count, int Step>
  CONVX_DEVICE void load_column(T* stage, int64_t offset, int first, int64_t begin) {
    const T* source = source_ + offset + (begin + first) * channel_stride_;
    const int left = channels_ - static_cast<int>(begin) - first;
    CONVX_UNROLL
    for (int i = 0; i < (kDepth<T> + Step - 1) / Step; ++i) {
      const int channel = first + i * Step;
      if (kDepth<T> % Step != 0 && channel >= kDepth<T>) continue;
      copy_elements<Count>(stage + channel * Pixels, source, offset >= 0 && i * Step < left);
      source += Step * channel_stride_;
    }
  }

  const T* source_;
  int channels_;
  int64_t channel_stride_;
  bool pieces_;
  int thread_;
  int64_t offset_[kColumns] = {};
};

// [channels][depth] of an nchw tensor: the depth is its pixels.
template <class T, int Channels, int Threads, class Map>
class PixelLoader {
 public:
  CONVX_DEVICE PixelLoader(const T* source, const Map& map, int channels, int64_t channel_stride, bool pieces,
                           int thread)
      : source_(source),
        map_(map),
        channels_(channels),
        channel_stride_(channel_stride),
        pieces_(pieces),
        thread_(thread) {
    keep_per_lane(source_);
    keep_per_lane(channels_);
    keep_per_lane(channel_stride_);
  }

  CONVX_DEVICE void load(T* stage, int64_t begin) {
    if (pieces_) {
      load_rows<kPiece<T>>(stage, static_cast<uint32_t>(begin));
    } else {
      load_rows<1>(stage, static_cast<uint32_t>(begin));
    }
  }

 private:
  template <int Count>
  CONVX_DEVICE void load_rows(T* stage, uint32_t begin) {
    constexpr int kPieces = kDepth<T> / Count, kStep = Threads / kPieces;
    const int piece = thread_ % kPieces * Count;
    const int64_t offset = map_.offset(begin + piece);
    const int first = thread_ / kPieces;
    const T* source = source_ + offset + first * channel_stride_;
    const auto copy = [&](int channel) {
      copy_elements<Count>(stage + channel * kPitch<T> + piece, source, offset >= 0 && channel < channels_);
      source += kStep * channel_stride_;
    };
    if constexpr (Count > 1) {
      CONVX_UNROLL
      for (int i = 0; i < (Channels + kStep - 1) / kStep; ++i) {
        if (Channels % kStep == 0 || first + i * kStep < Channels) copy(first + i * kStep);
      }
    } else {
      // AMD's compiler would keep a lane mask for each of many steps.
      CONVX_NO_UNROLL
      for (int channel = first; channel < Channels; channel += kStep) copy(channel);
    }
  }

  const T* source_;
  const Map& map_;
  int channels_;
  int64_t channel_stride_;
  bool pieces_;
  int thread_;
};

// [depth][channels] of a channels_last tensor: the depth is its pixels.
template <class T, int Channels, int Threads, class Map>
class ChannelLoader {
 public:
  CONVX_DEVICE ChannelLoader(const T* source, const Map& map, int channels, bool pieces, int thread)
      : source_(source), map_(map), channels_(channels), pieces_(pieces), thread_(thread) {}

  CONVX_DEVICE void load(T* stage, int64_t begin) {
    if (pieces_) {
      load_pixels<kPiece<T>>(stage, static_cast<uint32_t>(begin));
    } else {
      load_pixels<1>(stage, static_cast<uint32_t>(begin));
    }
  }

 private:
  template <int Count>
  CONVX_DEVICE void load_pixels(T* stage, uint32_t begin) {
    constexpr int kPieces = Channels / Count, kStep = Threads / kPieces;
    static_assert(Threads % kPieces == 0, "a thread loads the same channels of every pixel");
    const int channel = thread_ % kPieces * Count;
    CONVX_UNROLL
    for (int i = 0; i < (kDepth<T> + kStep - 1) / kStep; ++i) {
      const int pixel = thread_ / kPieces + i * kStep;
      if (kDepth<T> % kStep != 0 && pixel >= kDepth<T>) continue;
      const int64_t offset = map_.offset(begin + pixel);
      copy_elements<Count>(stage + pixel * Channels + channel, source_ + offset + channel,
                           offset >= 0 && channel < channels_);
    }
  }

  const T* source_;
  const Map& map_;
  int channels_;
  bool pieces_;
  int thread_;
};

}  // namespace convx::pointwise::fma
