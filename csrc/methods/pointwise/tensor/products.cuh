// Products of a stage's filters and pixels on matrix units. Filters come packed in fragment order and are
// read as fragments; pixels are read straight from the rows in which they lie: a lane takes 16 bytes of
// neighbouring pixels of each of its channels, element t of which belongs to its column of fragment t. So a
// lane ends with neighbouring pixels of a filter, and neither operand nor result is transposed. Of planes and
// of shifted rows, which begin anywhere, it takes single pixels, and their results pass through shared
// memory.
#pragma once
#include "methods/pointwise/tensor/copies.cuh"
#include "methods/pointwise/tensor/slots.cuh"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, Access How, class Tile>
class Products : public Copies<Kind, Lanes, How, Tile> {
 public:
  using Loads = Copies<Kind, Lanes, How, Tile>;
  using Loads::kPieces;
  using Loads::row_tile;
  using typename Loads::Size;
  using typename Loads::T;
  using Cell = Fragment<Lanes>;
  static constexpr int kFragments = Size::kFragments, kNeighbours = Size::kNeighbours;

  CONVX_DEVICE Products(const uint32_t* filters, const T* source, const Shape& shape)
      : Loads(filters, source, shape) {
    lane = thread_ % Lanes;
    const int warp = thread_ / Lanes;
    warp_row = warp % Tile::kWarpRows;
    warp_column = warp / Tile::kWarpRows % Tile::kWarpColumns;
    warp_depth = warp / (Tile::kWarpRows * Tile::kWarpColumns);
  }

  CONVX_DEVICE void clear_sums() {
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) sum[m][i][t] = 0;
      }
    }
  }

  CONVX_DEVICE void add_stage(const unsigned char* stage, const unsigned char* filters, int steps_left) {
    CONVX_UNROLL
    for (int i = 0; i < Tile::kSteps; i += How == kChannels ? 2 : 1) {
      const int step = warp_depth * Tile::kSteps + i;
      if (step < steps_left) {
        add_steps(reinterpret_cast<const T*>(stage), reinterpret_cast<const uint32_t*>(filters), step);
      }
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
    const int column = Cell::column(lane, i);
    const int of_lane = How == kShifted || How == kChannels ? column : group_of_column(column) * kNeighbours;
    return this->first_of_tile() + warp_column * Size::kWarpPixels + of_lane;
  }

  // Whether a sum is not, of those that count: others may hold anything. counts(i, t): of an index and a
  // fragment.
  template <class Counts>
  CONVX_DEVICE bool has_non_finite(const Counts& counts) const {
    float zero = 0;  // times what is not finite: not a number, from then on
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t)
          zero = counts(i, t) ? multiply_add(sum[m][i][t], 0.0f, zero) : zero;
      }
    }
    return zero != 0;
  }

  // Fragments last: a row of neighbouring pixels; of planes, channels and shifted rows one of pixels
  // kFragmentColumns apart.
  float sum[Tile::kRowsEach][4][kFragments];
  int lane, warp_row, warp_column, warp_depth;

 protected:
  using Loads::shape_, Loads::thread_;

 private:
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
          add_two_steps(t, a, low, next, next_low, b);
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
    } else if constexpr (How == kShifted) {
      const T* const first = source + (step * step_depth(Kind) + slot) * Size::kPitch + this->shift_of(slot) +
                             warp_column * Size::kWarpPixels + column;
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int at = t * Size::kFragmentColumns;
        add_floats(t, a, low, first[at], first[4 * Size::kPitch + at]);
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

  // x: of the first step, then of the next. Matrix units drop digits of long sums: each step is summed by
  // itself and added in float32, or two together, half the additions, where a warp has enough rows to wait
  // for one another.
  CONVX_DEVICE void add_two_steps(int t, const Words& a, const Words& low, const Words& next,
                                  const Words& next_low, const uint32_t (&x)[4]) {
    if constexpr (Kind == kSplit && Tile::kRowsEach >= 4) {
      uint32_t b[4], low_b[4];
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) part_tf32(x[i], b[i], low_b[i]);
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        float part[4] = {0, 0, 0, 0};
        multiply_fragments<Lanes, tf32>(part, a[m], low_b[0], low_b[1]);
        multiply_fragments<Lanes, tf32>(part, low[m], b[0], b[1]);
        multiply_fragments<Lanes, tf32>(part, next[m], low_b[2], low_b[3]);
        multiply_fragments<Lanes, tf32>(part, next_low[m], b[2], b[3]);
        multiply_fragments<Lanes, tf32>(part, a[m], b[0], b[1]);
        multiply_fragments<Lanes, tf32>(part, next[m], b[2], b[3]);
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) sum[m][i][t] += part[i];
      }
    } else {
      add_floats(t, a, low, bits_to_float(x[0]), bits_to_float(x[1]));
      add_floats(t, next, next_low, bits_to_float(x[2]), bits_to_float(x[3]));
    }
  }

  CONVX_DEVICE void add_floats(int t, const Words& a, const Words& low, float x0, float x1) {
    if constexpr (Kind == kSplit) {
      uint32_t b0, b1, low0, low1;
      part_tf32(float_to_bits(x0), b0, low0);
      part_tf32(float_to_bits(x1), b1, low1);
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) {
        float part[4] = {0, 0, 0, 0};
        multiply_fragments<Lanes, tf32>(part, a[m], low0, low1);
        multiply_fragments<Lanes, tf32>(part, low[m], b0, b1);
        multiply_fragments<Lanes, tf32>(part, a[m], b0, b1);
        CONVX_UNROLL
        for (int i = 0; i < 4; ++i) sum[m][i][t] += part[i];
      }
    } else {
      const uint32_t b0 = round_to_tf32(x0), b1 = round_to_tf32(x1);
      CONVX_UNROLL
      for (int m = 0; m < Tile::kRowsEach; ++m) add_product(m, t, a[m], b0, b1);
    }
  }
};

}  // namespace convx::pointwise::tensor
