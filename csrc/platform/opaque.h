// Keeping computations where they are written.
#pragma once
#include "platform/platform.h"

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
CONVX_DEVICE void make_opaque(float& value) {
#if defined(CONVX_SIMT)
  (void)value;
#elif defined(CONVX_CUDA)
  asm volatile("" : "+f"(value));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#endif
}

}  // namespace convx
