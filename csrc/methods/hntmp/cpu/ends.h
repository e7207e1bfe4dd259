// Both ends of a task: input rows into a staged window, and sums to memory in the layout asked for.
#pragma once
#include "methods/hntmp/cpu/sums.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace owning_channels {

// Columns of one phase of one staged row: staged[q] is the input at first + q * stride, zero outside.
template <class T>
CONVX_INLINE void stage_columns(const T* row, int64_t step, int64_t width, int64_t first, int64_t stride,
                                int64_t count, Accumulator<T>* staged) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  const int64_t begin = minimum(first >= 0 ? 0 : ceil_divide(-first, stride), count);
  const int64_t end = maximum(begin, minimum(first < width ? ceil_divide(width - first, stride) : 0, count));
  for (int64_t q = 0; q < begin; ++q) staged[q] = A(0);
  const T* from = row + (first + begin * stride) * step;
  int64_t q = begin;
  if (stride * step == 1) {
    for (; q + L <= end; q += L, from += L) store<L>(staged + q, load<L>(from));
  }
  for (; q < end; ++q, from += stride * step) staged[q] = widen(*from);
  for (; q < count; ++q) staged[q] = A(0);
}

// count pixels of L lanes each to memory: their sums through the epilogue. Of the lanes, the first
// `channels` exist. target: the first pixel of the first channel.
template <class T>
struct Finish {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  const A* sums;
  LaneEpilogue<T, L> epilogue;
  int64_t count, channels;

  CONVX_INLINE V pixel(int64_t index) const { return load<L>(sums + index * L); }

  void to_channels_last(T* target, int64_t pixel_step) const {
    for (int64_t i = 0; i < count; ++i, target += pixel_step) {
      const V value = epilogue(pixel(i), target, channels);
      channels == L ? store<L>(target, value) : store_some<L>(target, value, channels);
    }
  }

  void to_planes(T* target, int64_t plane) const {
    if constexpr (L >= 4) {
      if (count >= L) return transposed_to_planes(target, plane);
    }
    for (int64_t i = 0; i < count; ++i) {
      const V scaled = epilogue.scaled(pixel(i));
      const V value = epilogue.ending.template operator()<L>(scaled, target + i, channels, plane);
      for (int64_t k = 0; k < channels; ++k) store_one(target + k * plane + i, static_cast<A>(value[k]));
    }
  }

  void transposed_to_planes(T* target, int64_t plane) const {
    for (int64_t begin = 0; begin < count; begin += L) {
      const int64_t i = minimum(begin, count - L);  // the last step may repeat pixels
      V v[L];
      CONVX_UNROLLED
      for (int p = 0; p < L; ++p) v[p] = epilogue.scaled(pixel(i + p));
      transpose<V, L>(v);
      CONVX_UNROLLED
      for (int k = 0; k < L; ++k) {
        T* const row = target + k * plane + i;
        if (k < channels) store<L>(row, epilogue.ending.template operator()<L>(v[k], row));
      }
    }
  }
};

}  // namespace owning_channels
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
