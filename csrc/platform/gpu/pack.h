// Two results rounded into one 32-bit word.
#pragma once
#include <type_traits>

#include "platform/gpu/platform.h"

namespace convx {

// The 16-bit elements of a pair: low in the lower half, as it lies first in memory.
template <class T>
CONVX_DEVICE uint32_t narrow_pair(float low, float high) {
  return narrow<T>(low).bits | static_cast<uint32_t>(narrow<T>(high).bits) << 16;
}
#if defined(CONVX_CUDA)
template <>
CONVX_DEVICE uint32_t narrow_pair<bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);  // one instruction
  return __bfloat16_as_ushort(pair.x) | static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16;
}
template <>
CONVX_DEVICE uint32_t narrow_pair<float16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return __half_as_ushort(pair.x) | static_cast<uint32_t>(__half_as_ushort(pair.y)) << 16;
}
#endif

// The same of values that are zero where they are negative; NaN stays NaN.
template <class T>
CONVX_DEVICE uint32_t narrow_pair_of_relu(float low, float high) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (std::is_same<T, bfloat16>::value) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return narrow_pair<T>(low < 0 ? 0.0f : low, high < 0 ? 0.0f : high);
#endif
}

}  // namespace convx
