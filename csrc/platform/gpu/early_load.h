// Loads that are to be on their way early: without branches, or to the level-two cache alone.
#pragma once
#include "platform/gpu/vector.h"

namespace convx {

// Words of 8 or 16 bytes of read-only global memory where there are any, else as they were: by a predicate
// and without a branch, so that what comes before and after can be scheduled around it.
template <int N>
CONVX_DEVICE void load_if(bool exists, const void* address, uint32_t (&words)[N]) {
  static_assert(N == 2 || N == 4, "8 or 16 bytes");
#if defined(CONVX_CUDA)
  const size_t global = __cvta_generic_to_global(address);
  if constexpr (N == 2) {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.nc.v2.b32 {%0, %1}, [%2];}"
                 : "+r"(words[0]), "+r"(words[1])
                 : "l"(global), "r"(static_cast<uint32_t>(exists)));
  } else {
    asm volatile("{.reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];}"
                 : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
                 : "l"(global), "r"(static_cast<uint32_t>(exists)));
  }
#else
  if (!exists) return;
  const auto found = load<uint32_t, N>(static_cast<const uint32_t*>(address));
  for (int i = 0; i < N; ++i) words[i] = found.element[i];
#endif
}

// Lets a line of global memory come to the level-two cache.
CONVX_DEVICE void prefetch_to_l2([[maybe_unused]] const void* address) {
#if defined(CONVX_CUDA)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
#endif
}

}  // namespace convx
