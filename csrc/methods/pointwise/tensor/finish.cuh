// From the sums of a block to results in memory: the warps that shared out the channels are added in a fixed
// order, then epilogue and stores.
#pragma once
#include <type_traits>

#include "methods/epilogue.cuh"
#include "methods/pointwise/staged.cuh"
#include "methods/pointwise/tensor/exact.cuh"
#include "methods/pointwise/tensor/kernel.cuh"
#include "platform/gpu/clamp.h"

namespace convx::pointwise::tensor {

template <Precision Kind, int Lanes, Access How, class Tile>
class Finish {
 public:
  using Sums = Block<Kind, Lanes, How, Tile>;
  using T = typename Sums::T;
  using Size = typename Sums::Size;
  using Cell = Fragment<Lanes>;
  static constexpr int kFragments = Sums::kFragments;

  // filters and source as the caller gave them.
  CONVX_DEVICE Finish(Sums& sums, const T* filters, const T* source, const T* bias, T* result,
                      const Shape& shape, const Finishing<T>& finishing, unsigned char* shared)
      : sums_(sums),
        shape_(shape),
        filters_(filters),
        source_(source),
        bias_(bias),
        finishing_(finishing),
        shared_(shared) {
    first_row_ = sums.first_row() + Cell::row(sums.lane, 0);
    result_ = result + (static_cast<int64_t>(sums.group) * shape.rows + first_row_) * shape.result_stride;
    if constexpr (!kStaged) {
      CONVX_UNROLL
      for (int each = 0; each < kPlaces; ++each) {
        offset_[each] = shape.result.offset(sums.first_pixel(each));
      }
    }
  }

  CONVX_DEVICE void write() {
    if constexpr (kStaged || Tile::kWarpDepths > 1) block_barrier();  // the stages' memory is used anew
    if constexpr (Tile::kWarpDepths > 1) {
      write_exchanged();
    } else {
      write_own();
    }
    if constexpr (kStaged) {
      block_barrier();
      if constexpr (How == kPlanes) {
        copy_planes();
      } else {
        copy_rows();
      }
    }
  }

 private:
  // Rows that stores of 16 bytes can't reach go through shared memory, so that a warp writes them end to end.
  static constexpr bool kStaged = How == kPlanes || How == kElements || How == kShifted;
  // Distinct groups of pixels among a lane's four sums, of which i says the one.
  static constexpr int kPlaces = Lanes == 32 ? 2 : 1;
  CONVX_DEVICE static constexpr int place(int i) { return Lanes == 32 ? i & 1 : 0; }

  CONVX_DEVICE void write_exchanged() {
    constexpr int kTileWarps = Tile::kWarpRows * Tile::kWarpColumns;
    const int warp = threadIdx.x / Lanes;
    float* const all = reinterpret_cast<float*>(shared_);
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          all[(warp * Size::kSums + (m * 4 + i) * kFragments + t) * Lanes + sums_.lane] = sums_.sum[m][i][t];
        }
      }
    }
    block_barrier();
    CONVX_NO_UNROLL
    for (int u = sums_.warp_depth; u < 4 * Tile::kRowsEach; u += Tile::kWarpDepths) {
      float values[kFragments];
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        values[t] = 0;
        CONVX_UNROLL
        for (int depth = 0; depth < Tile::kWarpDepths; ++depth) {
          const int from = warp % kTileWarps + depth * kTileWarps;
          values[t] += all[(from * Size::kSums + u * kFragments + t) * Lanes + sums_.lane];
        }
      }
      if constexpr (Kind == kSplit) make_finite(u / 4, u % 4, values);
      finish_row(u / 4, u % 4, values);
      store_row(u / 4, u % 4, values);
    }
  }

  CONVX_DEVICE void write_own() {
    if constexpr (Kind == kSplit) {
      if (sums_.has_non_finite([&](int i, int t) { return is_in_plane(i, t); })) return write_exact();
    }
    const Activation activation = finishing_.activation;
    if (finishing_.more == 0 && activation != Activation::gelu) {
      // Each of its own: what is not asked for would lie between what is.
      if (activation <= Activation::relu6) return write_shortly(ClampRow(activation));
      return write_shortly([&](float (&row)[kFragments]) { activate_shortly<T>(row, activation); });
    }
    // One copy of the long code: rows move up after each.
    CONVX_NO_UNROLL
    for (int u = 0; u < 4 * Tile::kRowsEach; ++u) {
      float values[kFragments];
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) values[t] = sums_.sum[0][0][t];
      finish_row(u / 4, u % 4, values);
      store_row(u / 4, u % 4, values);
      CONVX_UNROLL
      for (int row = 0; row + 1 < 4 * Tile::kRowsEach; ++row) {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) {
          sums_.sum[row / 4][row % 4][t] = sums_.sum[(row + 1) / 4][(row + 1) % 4][t];
        }
      }
    }
  }

  // No more than a bias and an activation of few instructions.
  template <class Activate>
  CONVX_DEVICE void write_shortly(const Activate& activate) {
    constexpr bool kRowsOfPixels = How == kRows || How == kShortRows;
    // Where the results of rows of pixels go walks down the filters.
    T* to[kPlaces];
    int at[kPlaces];
    uint32_t stride = static_cast<uint32_t>(shape_.result_stride);
    make_opaque(stride);
    CONVX_UNROLL
    for (int each = 0; each < kPlaces; ++each) {
      to[each] = kRowsOfPixels ? result_ + offset_[each] : nullptr;
      at[each] = 0;
    }
    float shift = 0;
    CONVX_UNROLL
    for (int m = 0; m < Tile::kRowsEach; ++m) {
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = m * 16 + Cell::row_step(i);
        if (i == 0 || Cell::row_step(i) != Cell::row_step(i - 1)) shift = bias_of_row(row);
        float values[kFragments];
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) values[t] = sums_.sum[m][i][t] + shift;
        activate(values);
        if constexpr (kRowsOfPixels) {
          const int each = place(i);
          to[each] += static_cast<int64_t>(row - at[each]) * stride;
          at[each] = row;
          if (first_row_ + row < shape_.rows && offset_[each] >= 0) store_pixels(to[each], values);
        } else {
          store_row(m, i, values);
        }
      }
    }
  }

  // Without the sums, which would take too many registers beside all this.
  CONVX_DEVICE void write_exact() {
    CONVX_NO_UNROLL
    for (int u = 0; u < 4 * Tile::kRowsEach; ++u) {
      float values[kFragments];
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) values[t] = NAN;
      make_finite(u / 4, u % 4, values);
      finish_row(u / 4, u % 4, values);
      store_row(u / 4, u % 4, values);
    }
  }

  CONVX_DEVICE int64_t channel_of(int row) const {
    return static_cast<int64_t>(sums_.group) * shape_.rows + first_row_ + row;
  }
  CONVX_DEVICE float bias_of_row(int row) const {
    return first_row_ + row < shape_.rows ? bias_of(bias_, channel_of(row)) : 0.0f;
  }

  // Columns beyond a plane hold what was in shared memory.
  CONVX_DEVICE bool is_in_plane(int i, int t) const {
    if constexpr (!is_spread(How)) return true;
    const int column = Cell::column(sums_.lane, i) + t * Size::kFragmentColumns;
    if constexpr (How == kPlanes) return column < shape_.plane;
    return sums_.warp_column * Size::kWarpPixels + column < sums_.pixels_left();
  }

  CONVX_DEVICE uint32_t pixel_of(int i, int t) const {
    if constexpr (How == kPlanes) {
      const uint32_t image = sums_.column_tile * Tile::kWarpColumns + sums_.warp_column;
      return image * shape_.plane + Cell::column(sums_.lane, i) + t * Size::kFragmentColumns;
    }
    return sums_.first_pixel(i) + t * (How == kShifted ? Size::kFragmentColumns : 1);
  }

  // The parts of an infinity, or of a number that rounds to one, are not numbers: such sums are made again as
  // they stand. By turns, as the code is long.
  CONVX_DEVICE void make_finite(int m, int i, float (&values)[kFragments]) const {
    const int row = first_row_ + m * 16 + Cell::row_step(i);
    CONVX_NO_UNROLL
    for (int turn = 0; turn < kFragments; ++turn) {
      const float first = !is_in_plane(i, turn) || is_finite(values[0])
                              ? values[0]
                              : exact_sum(shape_, filters_, source_, sums_.group, row, pixel_of(i, turn));
      CONVX_UNROLL
      for (int t = 0; t + 1 < kFragments; ++t) values[t] = values[t + 1];
      values[kFragments - 1] = first;
    }
  }

  CONVX_DEVICE void finish_row(int m, int i, float (&values)[kFragments]) const {
    const int row = m * 16 + Cell::row_step(i);
    const float shift = bias_of_row(row);
    CONVX_UNROLL
    for (int t = 0; t < kFragments; ++t) values[t] += shift;
    if (first_row_ + row >= shape_.rows) return;
    finish(
        values, finishing_, [&](int) { return channel_of(row); },
        [&](T(&residuals)[kFragments]) {
          read_residuals_of(i, result_ + row * shape_.result_stride, residuals);
        });
  }

  // Of the pixels of store_row(), in the row that begins at `to`.
  CONVX_DEVICE void read_residuals_of(int i, const T* to, T (&residuals)[kFragments]) const {
    if constexpr (kStaged) {
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int64_t offset = is_in_plane(i, t) ? shape_.result.offset(pixel_of(i, t)) : kNoPixel;
        residuals[t] = T{};
        if (offset >= 0) residuals[t] = *residual_of(finishing_, to + offset);
      }
    } else {
      const int64_t offset = place(i) != 0 ? offset_[kPlaces - 1] : offset_[0];
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) residuals[t] = T{};
      if (offset >= 0) read_residuals(finishing_, to + offset, residuals);
    }
  }

  CONVX_DEVICE void store_row(int m, int i, const float (&values)[kFragments]) {
    const int row = m * 16 + Cell::row_step(i);
    if constexpr (How == kPlanes) {
      const int plane = shape_.plane;
      T* const to =
          staged_results() + (sums_.warp_column * Tile::kRows + sums_.warp_row * Tile::kRowsEach * 16 +
                              Cell::row(sums_.lane, 0) + row) *
                                 plane;
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) {
        const int pixel = Cell::column(sums_.lane, i) + t * Size::kFragmentColumns;
        const bool always = (t + 1) * Size::kFragmentColumns <= kFewestPlanePixels;
        if (always || pixel < plane) to[pixel] = narrow<T>(values[t]);
      }
    } else if constexpr (kStaged) {
      const int tile_row = sums_.warp_row * Tile::kRowsEach * 16 + Cell::row(sums_.lane, 0) + row;
      const int column = static_cast<int>(sums_.first_pixel(i) - sums_.first_of_tile());
      T* const to = staged_results() + tile_row * Size::kResultPitch + column;
      if constexpr (How == kElements) {
        store(reinterpret_cast<Word*>(to), pixels_of(values));
      } else {
        CONVX_UNROLL
        for (int t = 0; t < kFragments; ++t) to[t * Size::kFragmentColumns] = values[t];
      }
    } else {
      if (first_row_ + row >= shape_.rows) return;
      T* const to = result_ + row * shape_.result_stride;
      // Two named values: an index would keep the array in memory.
      const int64_t offset = place(i) != 0 ? offset_[kPlaces - 1] : offset_[0];
      if (offset >= 0) store_pixels(to + offset, values);
    }
  }

  // Neighbouring pixels of a filter, 16 bytes or 8: pairs of 16 bits, or floats.
  using Word = std::conditional_t<Size::kBytes == 2, uint32_t, float>;
  using Pixels = Vector<Word, kFragments * Size::kBytes / 4>;
  CONVX_DEVICE static Pixels pixels_of(const float (&values)[kFragments]) {
    Pixels pixels;
    if constexpr (Size::kBytes == 2) {
      CONVX_UNROLL
      for (int t = 0; t < kFragments / 2; ++t) {
        pixels.element[t] = narrow_pair<T>(values[2 * t], values[2 * t + 1]);
      }
    } else {
      CONVX_UNROLL
      for (int t = 0; t < kFragments; ++t) pixels.element[t] = values[t];
    }
    return pixels;
  }
  CONVX_DEVICE static void store_pixels(T* to, const float (&values)[kFragments]) {
    store_whole(reinterpret_cast<Word*>(to), pixels_of(values));
  }

  CONVX_DEVICE T* staged_results() const { return reinterpret_cast<T*>(shared_ + Size::exchange_bytes()); }

  // The rows of a tile are contiguous in an image of the result.
  CONVX_DEVICE void copy_planes() {
    constexpr int kPiece = 16 / Size::kBytes;
    const int tile_row = sums_.row_tile * Tile::kRows;
    const int rows = shape_.rows - tile_row < Tile::kRows ? shape_.rows - tile_row : Tile::kRows;
    const int pieces = rows * shape_.plane / kPiece;
    T* const tile = result_ + (tile_row - first_row_) * shape_.result_stride;
    CONVX_NO_UNROLL
    for (int image = 0; image < Tile::kWarpColumns; ++image) {
      const int64_t number = static_cast<int64_t>(sums_.column_tile) * Tile::kWarpColumns + image;
      if (number >= shape_.images) return;
      const T* const from = staged_results() + image * Tile::kRows * shape_.plane;
      T* const to = tile + number * shape_.result.image_stride;
      for (int piece = threadIdx.x; piece < pieces; piece += Size::kThreads) {
        using Words = Vector<uint32_t, 4>;
        store_whole<uint32_t, 4>(reinterpret_cast<uint32_t*>(to + piece * kPiece),
                                 *reinterpret_cast<const Words*>(from + piece * kPiece));
      }
    }
  }

  CONVX_DEVICE void copy_rows() {
    const int tile_row = sums_.row_tile * Tile::kRows;
    const int rows = shape_.rows - tile_row < Tile::kRows ? shape_.rows - tile_row : Tile::kRows;
    store_staged<Size::kColumns, Size::kResultPitch, Size::kThreads>(
        staged_results(), result_ + (tile_row - first_row_) * shape_.result_stride, rows,
        shape_.result_stride,
        [&](int column) {
          if (How == kShifted && column >= sums_.pixels_left()) return kNoPixel;
          return shape_.result.offset(sums_.first_of_tile() + column);
        },
        // No output was made from such a pixel: zero even where a filter is infinite.
        [&](int column) {
          return shape_.source.kind == OtherPixels::spread &&
                 shape_.source.offset(sums_.first_of_tile() + column) == kNoPixel;
        });
  }

  Sums& sums_;
  const Shape& shape_;
  const T *filters_, *source_;
  const T* bias_;
  const Finishing<T>& finishing_;
  T* result_;
  unsigned char* shared_;
  int first_row_;
  int64_t offset_[kPlaces] = {};
};

}  // namespace convx::pointwise::tensor
