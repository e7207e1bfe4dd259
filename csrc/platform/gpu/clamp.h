// The greater and the smaller of two values by one instruction each, NaN being neither.
#pragma once
#include <type_traits>

#include "platform/gpu/pack.h"

namespace convx {

// NaN where either is.
CONVX_DEVICE float greater_keeping_nan(float one, float other) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(one) : "f"(other));
  return one;
#else
  return other > one || other != other ? other : one;
#endif
}

// value, no less than low and no more than high; NaN stays NaN.
CONVX_DEVICE float clamp_keeping_nan(float value, float low, float high) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(low));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(high));
  return value;
#else
  const float raised = value < low ? low : value;
  return raised > high ? high : raised;
#endif
}

// Both 16-bit elements of a word, no more than those of another; NaN stays NaN.
template <class T>
CONVX_DEVICE uint32_t least_pair_keeping_nan(uint32_t pair, uint32_t high) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same<T, bfloat16>::value) {
    asm("min.NaN.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(high));
  } else {
    asm("min.NaN.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(high));
  }
  return pair;
#else
  const auto least = [&](int i) {
    const float value = widen(T{static_cast<uint16_t>(pair >> 16 * i)});
    const float most = widen(T{static_cast<uint16_t>(high >> 16 * i)});
    return value > most ? most : value;
  };
  return narrow_pair<T>(least(0), least(1));
#endif
}

}  // namespace convx
