// Filters times pixels on matrix units. Filters come packed in fragment order and are read as fragments;
// pixels are read straight from the rows in which they lie: a lane takes 16 bytes of neighbouring pixels of
// each of its channels, element t of which belongs to its column of fragment t. So a lane ends with
// neighbouring pixels of a filter, and neither operand nor result is transposed.
#pragma once
#include "methods/epilogue.cuh"
#include "methods/pointwise/copy.cuh"
#include "methods/pointwise/pixel_map.cuh"
#include "methods/pointwise/tensor/slots.cuh"
#include "platform/mma.h"
#include "platform/overlap.h"

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
class Block {
 public:
  using Size = Sizes<Kind, Lanes, How, Tile>;
  using T = typename Types<Kind>::Element;
  using Cell = Fragment<Lanes>;
  static constexpr int kThreads = Size::kThreads, kFragments = Size::kFragments;
  static constexpr int kPieces = 32 * Size::kParts;  // of 16 bytes in a fragment
  static constexpr int kNeighbours = Size::kNeighbours;

  CONVX_DEVICE Block(const uint32_t* filters, const T* source, const Shape& shape, unsigned char* shared)
      : shape_(shape), shared_(shared), thread_(threadIdx.x) {
    const uint32_t rest = blockIdx.x / shape.row_tiles;
    row_tile = static_cast<int>(blockIdx.x - rest * shape.row_tiles);
    group = rest / shape.column_tiles;
    column_tile = rest - group * shape.column_tiles;
    lane = thread_ % Lanes;
    const int warp = thread_ / Lanes;
    warp_row = warp % Tile::kWarpRows;
    warp_column = warp / Tile::kWarpRows % Tile::kWarpColumns;
    warp_depth = warp / (Tile::kWarpRows * Tile::kWarpColumns);
    filters_ = filters + (static_cast<int64_t>(group) * shape.m_tiles + row_tile * Tile::kRowTiles) *
                             shape.steps * (kPieces * 4);
    source_ = source + static_cast<int64_t>(group) * shape.depth * shape.source_stride;
    begin_filters();
    begin_source();
    keep_per_lane(channels_left_);
    keep_per_lane(filter_pieces_left_);
    keep_per_lane(row_tile);
    keep_per_lane(column_tile);
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) sum[m][i][t] = 0;
      }
    }
  }

  CONVX_DEVICE void multiply() {
    constexpr int kStages = Size::kStages;
    const int stage_bytes = shape_.source_stage_bytes + Size::kFilterBytes;
    const int chunks = (shape_.steps + Tile::kStageSteps - 1) / Tile::kStageSteps;
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < kStages - 1; ++chunk) {
      if (chunk < chunks) load(shared_ + chunk * stage_bytes);
      commit_copies();
    }
    int stage = 0, next = kStages - 1;
    CONVX_NO_UNROLL
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait_copies<kStages - 2>();
      block_barrier();
      if (chunk + kStages - 1 < chunks) load(shared_ + next * stage_bytes);
      commit_copies();
      add_stage(shared_ + stage * stage_bytes, shape_.steps - chunk * Tile::kStageSteps);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      next = next + 1 == kStages ? 0 : next + 1;
    }
  }

  // The pixel, within the warp's, of a sum's first fragment.
  CONVX_DEVICE static int group_of_column(int column) {
    return Lanes == 32 ? (column >> 1) + 4 * (column & 1) : column;
  }
  CONVX_DEVICE int first_row() const {
    return (row_tile * Tile::kRowTiles + warp_row * Tile::kRowsEach) * 16;
  }
  // Of all images; How is not kPlanes.
  CONVX_DEVICE uint32_t first_pixel(int i) const {
    if constexpr (How == kChannels) {
      return column_tile * Size::kColumns + warp_column * Size::kWarpPixels + Cell::column(lane, i);
    }
    return column_tile * Size::kColumns + warp_column * Size::kWarpPixels +
           group_of_column(Cell::column(lane, i)) * kNeighbours;
  }

  // Fragments last: a row of neighbouring pixels; of planes and channels one of pixels kFragmentColumns
  // apart.
  float sum[Tile::kRowsEach][4][kFragments];
  int row_tile, lane, warp_row, warp_column, warp_depth;
  uint32_t column_tile, group;

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

  CONVX_DEVICE void load(unsigned char* stage) {
    load_filters(stage + shape_.source_stage_bytes);
    load_source(reinterpret_cast<T*>(stage));
  }

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

  CONVX_DEVICE void add_stage(const unsigned char* stage, int steps_left) {
    const T* const source = reinterpret_cast<const T*>(stage);
    const uint32_t* const filters = reinterpret_cast<const uint32_t*>(stage + shape_.source_stage_bytes);
    CONVX_UNROLL
    for (int i = 0; i < Tile::kSteps; i += How == kChannels ? 2 : 1) {
      const int step = warp_depth * Tile::kSteps + i;
      if (step < steps_left) add_steps(source, filters, step);
    }
  }

  using Words = uint32_t[Tile::kRowsEach][Cell::kWordsA];

  // The filters' fragments of a step; low is the split's second part.
  CONVX_DEVICE void take_filters(const uint32_t* filters, int step, Words& a, Words& low) {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      const uint32_t* const fragment =
          filters + ((warp_row * Tile::kRowsEach + m) * Tile::kStageSteps + step) * (kPieces * 4);
      take_words(fragment + lane * Cell::kWordsA, a[m]);
      if constexpr (Kind == kSplit) take_words(fragment + 128 + lane * Cell::kWordsA, low[m]);
    }
  }

  // One step of channels, or the two that a lane takes at once from rows of channels.
  CONVX_DEVICE void add_steps(const T* source, const uint32_t* filters, int step) {
    Words a, low;
    take_filters(filters, step, a, low);
    if constexpr (How == kChannels) {
      Words next, next_low;
      take_filters(filters, step + 1, next, next_low);
      const T* const first = source +
                             (warp_column * Size::kWarpPixels + Cell::column_of_b(lane)) * Size::kPitch +
                             channel_of_slot<Size::kBytes>(kChannels, step, Cell::slot(lane), 0);
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        uint32_t b[4];
        take_words(reinterpret_cast<const uint32_t*>(first + t * Size::kFragmentColumns * Size::kPitch), b);
        if constexpr (Size::kBytes == 2) {
          add_pairs(t, a, b[0], b[1]);
          add_pairs(t, next, b[2], b[3]);
        } else {
          add_floats(t, a, low, bits_to_float(b[0]), bits_to_float(b[1]));
          add_floats(t, next, next_low, bits_to_float(b[2]), bits_to_float(b[3]));
        }
      }
    } else {
      add_step(source, step, a, low);
    }
  }

  template <int Count>
  CONVX_DEVICE static void take_words(const uint32_t* from, uint32_t (&words)[Count]) {
    const Vector<uint32_t, Count> all = *reinterpret_cast<const Vector<uint32_t, Count>*>(from);
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) words[i] = all.element[i];
  }

  CONVX_DEVICE void add_product(int m, int t, const uint32_t (&a)[Cell::kWordsA], uint32_t b0, uint32_t b1) {
    float four[4];
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = sum[m][i][t];
    multiply_fragments<Lanes, typename Types<Kind>::Product>(four, a, b0, b1);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) sum[m][i][t] = four[i];
  }

  CONVX_DEVICE void add_step(const T* source, int step, const Words& a, const Words& low) {
    constexpr int kValues = Size::kBytes == 2 ? 4 : 2;  // channels of a lane
    const int slot = Cell::slot(lane), column = Cell::column_of_b(lane);
    if constexpr (How == kPlanes) {
      const int plane = shape_.plane;
      const T* rows[kValues];
      CONVX_UNROLL
      for (int i = 0; i < kValues; ++i) {
        rows[i] = source +
                  (warp_column * Size::kStageDepth + channel_of_slot<Size::kBytes>(kPlanes, step, slot, i)) *
                      plane +
                  column;
      }
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int at = t * Size::kFragmentColumns;
        if constexpr (Size::kBytes == 2) {
          add_pairs(t, a, rows[0][at].bits | static_cast<uint32_t>(rows[1][at].bits) << 16,
                    rows[2][at].bits | static_cast<uint32_t>(rows[3][at].bits) << 16);
        } else {
          add_floats(t, a, low, rows[0][at], rows[1][at]);
        }
      }
    } else {
      const T* const first = source + warp_column * Size::kWarpPixels + group_of_column(column) * kNeighbours;
      // Of a row of elements the channel was chosen when it was copied.
      constexpr Access kOrder = How == kElements ? kRows : How;
      if constexpr (Size::kBytes == 2) {
        uint32_t values[4][kNeighbours / 2];
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) {
          const T* const row = first + channel_of_slot<2>(kOrder, step, slot, i) * Size::kPitch;
          take_words(reinterpret_cast<const uint32_t*>(row), values[i]);
        }
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          add_pairs(t, a, pair_halves(values[0][t / 2], values[1][t / 2], t % 2),
                    pair_halves(values[2][t / 2], values[3][t / 2], t % 2));
        }
      } else {
        Vector<float, 4> values[2];
        CONVX_UNROLL
        for (int i = 0; i < 2; ++i) {
          values[i] = *reinterpret_cast<const Vector<float, 4>*>(
              first + channel_of_slot<4>(kOrder, step, slot, i) * Size::kPitch);
        }
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          add_floats(t, a, low, values[0].element[t], values[1].element[t]);
        }
      }
    }
  }

  CONVX_DEVICE void add_pairs(int t, const Words& a, uint32_t b0, uint32_t b1) {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) add_product(m, t, a[m], b0, b1);
  }

  CONVX_DEVICE void add_floats(int t, const Words& a, const Words& low, float x0, float x1) {
    const uint32_t b0 = round_to_tf32(x0), b1 = round_to_tf32(x1);
    if constexpr (Kind == kSplit) {
      const uint32_t low0 = round_to_tf32(x0 - bits_to_float(b0)),
                     low1 = round_to_tf32(x1 - bits_to_float(b1));
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        // Matrix units drop digits of long sums: each step is summed by itself, and added in float32.
        float part[4] = {0, 0, 0, 0};
        multiply_fragments<Lanes, tf32>(part, a[m], low0, low1);
        multiply_fragments<Lanes, tf32>(part, low[m], b0, b1);
        multiply_fragments<Lanes, tf32>(part, a[m], b0, b1);
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) sum[m][i][t] += part[i];
      }
    } else {
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) add_product(m, t, a[m], b0, b1);
    }
  }

  const Shape& shape_;
  unsigned char* shared_;
  const uint32_t* filters_;
  const T* source_;
  int thread_;
  int filter_pieces_left_, channels_left_, images_left_ = 0;
  int filter_offset_[kFilterCopies];
  int64_t pixel_[kColumnsEach] = {};
};

}  // namespace convx::pointwise::tensor
