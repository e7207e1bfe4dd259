// Both ends of a task: source pixels and filters to accumulators, and sums to memory through the
// epilogue.
#pragma once
#include "methods/pointwise/cpu/outer.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace products {

using pointwise::Grid;
using pointwise::ProductJob;
using pointwise::Side;
using pointwise::WeightJob;

// Where pixels first to first + count - 1 of a grid lie in an image.
CONVX_INLINE void list_pixels(const Grid& grid, const Side& side, int64_t first, int64_t count,
                              int64_t* pixels) {
  int64_t row = first / grid.width, column = first % grid.width;
  for (int64_t i = 0; i < count; ++i) {
    pixels[i] = side.pixel(row, column);
    if (++column == grid.width) column = 0, ++row;
  }
}

template <class T>
CONVX_INLINE void widen_row(const T* row, int64_t count, Accumulator<T>* widened) {
  constexpr int L = kLanes<Accumulator<T>>;
  int64_t i = 0;
  for (; i + L <= count; i += L) store<L>(widened + i, load<L>(row + i));
  if (i == count) return;
  if (count >= L) {
    store<L>(widened + count - L, load<L>(row + count - L));
  } else {
    for (; i < count; ++i) widened[i] = widen(row[i]);
  }
}

// Filters as accumulators: those of 16 bits are widened once for all pixels that meet them.
template <class T>
CONVX_INLINE const Accumulator<T>* widened(const T* values, int64_t count, Accumulator<T>* memory) {
  if constexpr (sizeof(T) == sizeof(Accumulator<T>)) {
    return values;
  } else {
    widen_row(values, count, memory);
    return memory;
  }
}

// Pixels of an image for a task: neighbours from `first` on, or where `list` says, in the rows of a grid.
struct Pixels {
  int64_t first, count;
  const int64_t* list;          // null for neighbours
  int64_t width = 0, step = 0;  // of the list: pixels of a grid's row, and how far apart they are
};

// Pixels of a task, listed in `memory` where they are no neighbours.
CONVX_INLINE Pixels pixels_of(const Grid& grid, const Side& side, int64_t first, int64_t count,
                              int64_t* memory) {
  if (grid.is_flat(side)) return {first, count, nullptr};
  list_pixels(grid, side, first, count, memory);
  return {first, count, memory, grid.width, side.column_step};
}

// A run of pixels `step` apart. Of the plane, `left` elements begin with the first.
template <class T, int L = kLanes<Accumulator<T>>>
CONVX_INLINE void widen_run(const T* from, int64_t step, int64_t left, int64_t count,
                            Accumulator<T>* widened) {
  int64_t i = 0;
  if constexpr (L >= 4) {
    if (step == 2) {
      for (; i + L <= count && 2 * (i + L) <= left; i += L) {
        store<L>(widened + i, even_lanes(load<L>(from + 2 * i), load<L>(from + 2 * i + L)));
      }
      if constexpr (L == 16)
        return widen_run<T, L / 2>(from + 2 * i, 2, left - 2 * i, count - i, widened + i);
    }
  }
  for (; i < count; ++i) widened[i] = widen(from[i * step]);
}

// Planes to [channel][pixel], zeros up to pitch, which is a multiple of the lanes.
template <class T>
__attribute__((noinline)) void stage_planes(const T* planes, int64_t plane, int64_t channels,
                                            const Pixels& pixels, int64_t pitch, Accumulator<T>* staged) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  for (int64_t c = 0; c < channels; ++c, planes += plane, staged += pitch) {
    if (pixels.count < pitch) store<L>(staged + pitch - L, Simd<A, L>{});
    if (pixels.list == nullptr) {
      widen_row(planes + pixels.first, pixels.count, staged);
      continue;
    }
    for (int64_t i = 0; i < pixels.count;) {
      const int64_t run = minimum(pixels.width - (pixels.first + i) % pixels.width, pixels.count - i);
      const int64_t first = pixels.list[i];
      if (pixels.step == 1) {
        widen_row(planes + first, run, staged + i);
      } else {
        widen_run(planes + first, pixels.step, plane - first, run, staged + i);
      }
      i += run;
    }
  }
}

// Pixels of channels_last to [pixel][channel].
template <class T>
__attribute__((noinline)) void stage_pixels(const T* image, int64_t pixel_step, int64_t channels,
                                            const Pixels& pixels, int64_t pitch, Accumulator<T>* staged) {
  for (int64_t i = 0; i < pixels.count; ++i, staged += pitch) {
    const int64_t pixel = pixels.list == nullptr ? pixels.first + i : pixels.list[i];
    widen_row(image + pixel * pixel_step, channels, staged);
  }
}

// A finished vector of one plane, its first `count` lanes from the at-th pixel on.
template <class T, int L>
CONVX_INLINE void store_pixels(T* plane, const Pixels& pixels, int64_t at, Simd<Accumulator<T>, L> value,
                               int64_t count) {
  if (pixels.list == nullptr) {
    T* const target = plane + pixels.first + at;
    count == L ? store<L>(target, value) : store_some<L>(target, value, count);
    return;
  }
  T lanes[L];
  store<L>(lanes, value);
  for (int64_t i = 0; i < count; ++i) plane[pixels.list[at + i]] = lanes[i];
}

// The same, with what the epilogue ends with before.
template <class T, int L>
CONVX_INLINE void end_pixels(const Ending<T>& ending, T* plane, const Pixels& pixels, int64_t at,
                             Simd<Accumulator<T>, L> value, int64_t count) {
  Simd<Accumulator<T>, L> residuals{};
  if (ending.adds() && pixels.list != nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      residuals[i] = widen(*residual_of(plane + pixels.list[at + i], ending.residual_distance));
    }
  } else if (ending.adds()) {
    residuals = load_residuals<T, L>(plane + pixels.first + at, ending.residual_distance, count, 1);
  }
  store_pixels<T, L>(plane, pixels, at, ending.template with<L>(value, residuals), count);
}

// One filter's sums, [pixel], to its plane.
template <class T>
CONVX_INLINE void finish_row(const Accumulator<T>* sums, const ChannelEpilogue<T>& epilogue,
                             const Pixels& pixels, T* plane) {
  constexpr int L = kLanes<Accumulator<T>>;
  for (int64_t i = 0; i < pixels.count; i += L) {
    end_pixels<T, L>(epilogue.ending, plane, pixels, i, load<L>(sums + i) * epilogue.scale + epilogue.bias,
                     minimum(pixels.count - i, L));
  }
}

// Sums whose lanes are neighbouring channels: [pixel][step], of which a vector at a time.
template <class T>
struct ChannelSums {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  const A* sums;
  int64_t step;
  LaneEpilogue<T, L> epilogue;
  int64_t channels;  // of the lanes, those that exist

  CONVX_INLINE V at(int64_t pixel) const { return epilogue.scaled(load<L>(sums + pixel * step)); }

  // image: of the lanes' first channel.
  CONVX_INLINE void to_channels_last(const Pixels& pixels, T* image, int64_t pixel_step) const {
    for (int64_t i = 0; i < pixels.count; ++i) {
      const int64_t pixel = pixels.list == nullptr ? pixels.first + i : pixels.list[i];
      T* const target = image + pixel * pixel_step;
      const V value = epilogue.ending.template operator()<L>(at(i), target, channels);
      channels == L ? store<L>(target, value) : store_some<L>(target, value, channels);
    }
  }

  CONVX_INLINE void to_planes(const Pixels& pixels, T* planes, int64_t plane) const {
    if constexpr (L >= 4) {
      for (int64_t begin = 0; begin < pixels.count; begin += L) {
        // The last step may repeat pixels.
        const int64_t first = minimum(begin, maximum(pixels.count - L, 0));
        const int64_t count = minimum(pixels.count - first, L);
        V v[L];
        CONVX_UNROLLED
        for (int p = 0; p < L; ++p) v[p] = p < count ? at(first + p) : V{};
        transpose<V, L>(v);
        // Not unrolled: the code of activations and residuals is long.
        const int64_t rows = minimum(channels, L);
        for (int64_t k = 0; k < rows; ++k) {
          end_pixels<T, L>(epilogue.ending, planes + k * plane, pixels, first, v[k], count);
        }
      }
    } else {
      for (int64_t i = 0; i < pixels.count; ++i) {
        const int64_t pixel = pixels.list == nullptr ? pixels.first + i : pixels.list[i];
        const V value = epilogue.ending.template operator()<L>(at(i), planes + pixel, channels, plane);
        for (int64_t k = 0; k < channels; ++k) {
          store_one(planes + k * plane + pixel, static_cast<A>(value[k]));
        }
      }
    }
  }
};

}  // namespace products
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
