// Pixels of every image type as accumulators, and what lies outside an image.
#pragma once
#include <cstdint>

#include "methods/epilogue.cuh"
#include "platform/gpu/platform.h"
#include "problem/filter_problem.h"

namespace convx::filter2d {

// Element type of the filters and the bias of images of T.
template <class T>
struct FilterElementOf {
  using type = T;
};
template <>
struct FilterElementOf<uint8_t> {
  using type = float;
};
template <class T>
using FilterElement = typename FilterElementOf<T>::type;

template <class T>
CONVX_DEVICE Accumulator<T> read_pixel(const T* address) {
  if constexpr (sizeof(T) == 1) {
#if defined(CONVX_CUDA)
    return static_cast<float>(__ldg(address));
#else
    return static_cast<float>(*address);
#endif
  } else {
    return widen(load<T, 1>(address).element[0]);
  }
}

// 0 to 255, to nearest even; NaN gives 0. At 2^23 a float's last bit counts one.
CONVX_DEVICE uint32_t saturated_byte(float value) {
  const float clamped = value > 0.0f ? (value < 255.0f ? value : 255.0f) : 0.0f;
  return float_to_bits(clamped + 8388608.0f) & 0xffu;
}

template <class T>
CONVX_DEVICE void write_pixel(T* address, Accumulator<T> value) {
  if constexpr (sizeof(T) == 1) {
    *address = static_cast<uint8_t>(saturated_byte(value));
  } else {
    store<T, 1>(address, Vector<T, 1>{{narrow<T>(value)}});
  }
}

// As border_index, for indices a few sizes outside at most: steps instead of a division.
CONVX_DEVICE int near_border_index(int index, int size, Border border) {
  if (index >= 0 && index < size) return index;
  if (border == Border::zero) return -1;
  if (border == Border::replicate) return index < 0 ? 0 : size - 1;
  if (size == 1) return 0;
  while (index < 0 || index >= size) {
    if (border == Border::wrap) {
      index += index < 0 ? size : -size;
    } else {
      index = index < 0 ? -index : 2 * (size - 1) - index;
    }
  }
  return index;
}

}  // namespace convx::filter2d
