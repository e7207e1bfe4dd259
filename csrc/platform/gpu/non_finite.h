// Whether there are infinities or NaN among values of 16 bits.
#pragma once
#include <type_traits>

#include "platform/gpu/pack.h"
#include "platform/gpu/platform.h"

namespace convx {

// One instruction a pair: the product of what is not finite and zero is NaN, and so are sums with it.
template <class T>
class NonFinite {
 public:
  CONVX_DEVICE void look_at(uint32_t pair) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same<T, bfloat16>::value) {
      asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum_) : "r"(pair), "r"(0u));
    } else {
      asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum_) : "r"(pair), "r"(0u));
    }
#else
    constexpr uint32_t kExponent = std::is_same<T, bfloat16>::value ? 0x7f80u : 0x7c00u;
    sum_ |= (pair & kExponent) == kExponent || (pair >> 16 & kExponent) == kExponent;
#endif
  }
  CONVX_DEVICE bool any() const { return sum_ != 0; }

 private:
  uint32_t sum_ = 0;
};

}  // namespace convx
