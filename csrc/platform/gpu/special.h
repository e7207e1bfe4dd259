// One instruction each of the special function unit, a few units in the last place off. Numbers below the
// normal ones count as zero.
#pragma once
#include "platform/gpu/platform.h"

namespace convx {

CONVX_DEVICE float fast_exp2(float value) {
#if defined(CONVX_SIMT)
  return __builtin_exp2f(value);
#elif defined(CONVX_CUDA)
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
#else
  return exp2f(value);
#endif
}

CONVX_DEVICE float fast_reciprocal(float value) {
#if defined(CONVX_SIMT)
  return 1.0f / value;
#elif defined(CONVX_CUDA)
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
#else
  return __builtin_amdgcn_rcpf(value);
#endif
}

}  // namespace convx
