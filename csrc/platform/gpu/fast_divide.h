// Division of 32-bit indices by a run-time constant: one multiply and a shift.
#pragma once
#include <cstdint>

#include "platform/gpu/platform.h"

namespace convx {

// Exact for dividends below 2^31. Built on the host, passed to kernels by value.
struct FastDivide {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t value) : divisor(value) {
    if (value == 1) return;
    uint32_t log2 = 0;
    while ((uint64_t{1} << log2) < value) ++log2;
    const uint32_t bits = 31 + log2;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << bits) + value - 1) / value);
    shift = bits - 32;
  }

  CONVX_DEVICE uint32_t quotient(uint32_t dividend) const {
    if (divisor == 1) return dividend;
#if defined(CONVX_SIMT)
    return static_cast<uint32_t>((static_cast<uint64_t>(dividend) * multiplier) >> 32) >> shift;
#else
    return __umulhi(dividend, multiplier) >> shift;
#endif
  }
  CONVX_DEVICE uint32_t remainder(uint32_t dividend) const { return dividend - quotient(dividend) * divisor; }
};

inline FastDivide divide_by(int64_t value) {
  return FastDivide(static_cast<uint32_t>(value));
}

}  // namespace convx
