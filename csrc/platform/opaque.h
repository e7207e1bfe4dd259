// Keeping what is computed from a value where it is written.
#pragma once
#include <cstdint>

namespace convx {

// Hides where the value of a register comes from: without it compilers unpack a loop's packed values before
// the loop, into several registers each.
CONVX_DEVICE void make_opaque(uint32_t& value) {
#if defined(CONVX_SIMT)
  (void)value;
#elif defined(CONVX_CUDA)
  asm volatile("" : "+r"(value));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#endif
}

}  // namespace convx
