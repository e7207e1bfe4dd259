// Clamping in two instructions.
#pragma once
#include "platform/gpu/numeric.h"

namespace convx {

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

}  // namespace convx
