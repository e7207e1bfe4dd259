// Registers transposed.
#pragma once
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// L vectors of L lanes, transposed by log2(L) perfect shuffles.
template <class V, int L>
CONVX_INLINE void transpose(V (&v)[L]) {
  CONVX_UNROLLED
  for (int stage = 1; stage < L; stage *= 2) {
    V next[L];
    CONVX_UNROLLED
    for (int i = 0; i < L / 2; ++i) {
      next[2 * i] = zip_low(v[i], v[i + L / 2]);
      next[2 * i + 1] = zip_high(v[i], v[i + L / 2]);
    }
    CONVX_UNROLLED
    for (int i = 0; i < L; ++i) v[i] = next[i];
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
