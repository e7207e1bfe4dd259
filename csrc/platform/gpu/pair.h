// Arithmetic of pairs of 16 bits in a word.
#pragma once
#include <type_traits>

#include "platform/gpu/pack.h"
#include "platform/gpu/platform.h"

namespace convx {

// Products of both values, each rounded.
template <class T>
CONVX_DEVICE uint32_t multiply_pairs(uint32_t a, uint32_t b) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t product;
  if constexpr (std::is_same<T, bfloat16>::value) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(product)
        : "r"(a), "r"(b), "r"(0x80008000u));  // -0: of all signs
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  }
  return product;
#else
  const auto value = [](uint32_t bits) {
    T element;
    element.bits = static_cast<uint16_t>(bits);
    return widen(element);
  };
  return narrow_pair<T>(value(a) * value(b), value(a >> 16) * value(b >> 16));
#endif
}

}  // namespace convx
