// Activations of values, as they are written. Which one it is is known to the compiler: kernels hold many
// copies of its code, and have to fit into the instruction cache.
#pragma once
#include "methods/activate.cuh"
#include "methods/inverted_residual/shape.h"

namespace convx::inverted_residual {

// What relu and relu6 differ in; exact in 16 bits.
template <class T>
struct Bound {
  uint32_t high;  // twice

  CONVX_DEVICE explicit Bound(Activation activation) {
    const float most = activation == Activation::relu6 ? 6.0f : bits_to_float(0x7f800000u);
    high = narrow_pair<T>(most, most);
  }
};

template <>
struct Bound<float> {
  float high;

  CONVX_DEVICE explicit Bound(Activation activation)
      : high(activation == Activation::relu6 ? 6.0f : bits_to_float(0x7f800000u)) {}
};

// high: of a Bound; of relu and relu6 alone. Rounded to 16 bits.
template <class T, Inside kInside>
CONVX_DEVICE uint32_t activated_pair(float x, float y, uint32_t high) {
  if constexpr (kInside == Inside::relu) {
    return least_pair_keeping_nan<T>(narrow_pair_of_relu<T>(x, y), high);
  } else if constexpr (kInside == Inside::silu) {
    return narrow_pair<T>(silu<T>(x), silu<T>(y));
  } else {
    return narrow_pair<T>(hardswish<T>(x), hardswish<T>(y));
  }
}

// Neighbours, as they lie in memory.
template <class T, Inside kInside, int Count>
CONVX_DEVICE Vector<uint32_t, Count * sizeof(T) / 4> activated_words(const float (&values)[Count],
                                                                     const Bound<T>& bound) {
  Vector<uint32_t, Count * sizeof(T) / 4> words;
  if constexpr (sizeof(T) == 2) {
    CONVX_UNROLL
    for (int i = 0; i < Count / 2; ++i) {
      words.element[i] = activated_pair<T, kInside>(values[2 * i], values[2 * i + 1], bound.high);
    }
  } else {
    CONVX_UNROLL
    for (int i = 0; i < Count; ++i) {
      words.element[i] = float_to_bits(
          kInside == Inside::relu ? clamp_keeping_nan(values[i], 0.0f, bound.high) : hardswish<T>(values[i]));
    }
  }
  return words;
}

template <class T, int Count>
CONVX_DEVICE Vector<uint32_t, Count * sizeof(T) / 4> rounded_words(const float (&values)[Count]) {
  Vector<uint32_t, Count * sizeof(T) / 4> words;
  CONVX_UNROLL
  for (int i = 0; i < Count * static_cast<int>(sizeof(T)) / 4; ++i) {
    if constexpr (sizeof(T) == 2) {
      words.element[i] = narrow_pair<T>(values[2 * i], values[2 * i + 1]);
    } else {
      words.element[i] = float_to_bits(values[i]);
    }
  }
  return words;
}

}  // namespace convx::inverted_residual
