// What a block's sums become: results, with their epilogue.
#pragma once
#include "methods/deep/warp.cuh"
#include "methods/epilogue.cuh"

namespace convx::deep {

// Units are four neighbouring filters of a pixel or, of planes, four neighbouring pixels of a filter.
template <Precision Kind, int Lanes, class T, int Pixels, bool Planes, bool Taps>
struct Ending {
  using Quad = Vector<float, 4>;
  const Shape& shape;
  const uint32_t* packed;
  const T *source, *bias;
  T* result;
  const Finishing<T>& finishing;
  int first_filter;
  uint32_t first_pixel;

  static constexpr int kQuads = (Planes ? Pixels : kPairFilters) / 4;  // units of a row of sums

  CONVX_DEVICE int64_t place_of(uint32_t pixel, int channels) const {
    return Planes ? shape.in_planes(pixel, channels) : static_cast<int64_t>(pixel) * channels;
  }

  // The two parts of an infinity, or of a number that rounds to one, are not numbers: such sums are made
  // again from the operands as they stand, filters but for a last digit (against_dropped_digits).
  CONVX_DEVICE float exact_sum(int filter, uint32_t pixel) const {
    if constexpr (Taps) {
      const Window& window = shape.window;
      const Field field(shape, pixel, Planes);
      const int step = Planes ? window.height * window.width : 1;
      const int tap_channels = static_cast<int>(window.pieces.divisor) * (kPieceBytes / 4);
      float sum = 0;
      CONVX_NO_UNROLL
      for (int index = 0; index < window.taps; ++index) {
        const Tap tap(window, static_cast<uint32_t>(index));
        if (!tap.is_inside(window, field)) continue;
        const T* const from = source + (field.place + tap.shift(window, Planes ? 1 : shape.channels));
        sum = sum_of_channels(filter, index * tap_channels, from, step, sum);
      }
      return sum;
    } else {
      return sum_of_channels(filter, 0, source + place_of(pixel, shape.channels),
                             Planes ? shape.plane.divisor : 1, 0);
    }
  }

  CONVX_DEVICE float sum_of_channels(int filter, int depth, const T* from, int64_t step, float sum) const {
    CONVX_NO_UNROLL
    for (int channel = 0; channel < shape.channels; ++channel) {
      const int64_t word = matrix::ChannelOrder::word<Lanes>(filter, depth + channel, 2 * shape.step_pairs);
      sum = multiply_add(bits_to_float(packed[word]), widen(from[channel * step]), sum);
    }
    return sum;
  }

  // By turns: one copy of the code.
  CONVX_DEVICE void make_exact(float (&row)[4], int filter, uint32_t pixel) const {
    const float all = (row[0] + row[1]) + (row[2] + row[3]);
    if (fabsf(all) < INFINITY) return;
    CONVX_NO_UNROLL
    for (int turn = 0; turn < 4; ++turn) {
      float first = row[0];
      if (!(fabsf(first) < INFINITY)) {
        first =
            Planes ? exact_sum(filter, min(pixel + turn, shape.pixels - 1)) : exact_sum(filter + turn, pixel);
      }
      row[0] = row[1], row[1] = row[2], row[2] = row[3], row[3] = first;
    }
  }

  CONVX_DEVICE void store_unit(int unit, Quad sums) const {
    if constexpr (Planes)
      return store_planes(first_filter + unit / kQuads, first_pixel + unit % kQuads * 4, sums);
    const int filter = first_filter + unit % kQuads * 4;
    const uint32_t pixel = first_pixel + unit / kQuads;
    if (filter >= shape.filters || pixel >= shape.pixels) return;
    float (&row)[4] = sums.element;
    if constexpr (Kind == matrix::kSplit) make_exact(row, filter, pixel);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) row[i] += bias_of(bias, filter + i);
    T* const place = result + static_cast<int64_t>(pixel) * shape.filters + filter;
    finish<T>(
        row, finishing, [&](int i) { return filter + i; },
        [&](T(&residuals)[4]) { read_residuals(finishing, place, residuals); });
    Vector<T, 4> values;
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) values.element[i] = narrow<T>(row[i]);
    store<T, 4>(place, values);
  }

  CONVX_DEVICE void store_planes(int filter, uint32_t pixel, Quad sums) const {
    if (filter >= shape.filters || pixel >= shape.pixels) return;
    float (&row)[4] = sums.element;
    if constexpr (Kind == matrix::kSplit) make_exact(row, filter, pixel);
    const float own_bias = bias_of(bias, filter);
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) row[i] += own_bias;
    T* const of_filter = result + static_cast<int64_t>(filter) * shape.plane.divisor;
    const auto place = [&](int i) {
      return pixel + i < shape.pixels ? of_filter + shape.in_planes(pixel + i, shape.filters) : nullptr;
    };
    finish_by_turns<T>(row, finishing, filter, place);
    if (shape.plane.divisor % 4 == 0) {
      Vector<T, 4> values;
      CONVX_UNROLL
      for (int i = 0; i < 4; ++i) values.element[i] = narrow<T>(row[i]);
      return store<T, 4>(place(0), values);
    }
    CONVX_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (T* const to = place(i)) *to = narrow<T>(row[i]);
    }
  }
};

}  // namespace convx::deep
