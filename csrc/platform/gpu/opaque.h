// Keeping computations where they are written.
#pragma once
#include "platform/gpu/platform.h"

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

// Leaves a register with whatever it holds, for values that nobody will use: compilers that see the value of
// before live on copy a loop's registers at every turn.
CONVX_DEVICE void leave_undefined(float& value) {
#if defined(CONVX_SIMT)
  (void)value;
#elif defined(CONVX_CUDA)
  asm volatile("" : "=f"(value));
#elif defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "=v"(value));
#endif
}

// The one argument of a kernel, read anew: compilers for AMD read it once, at the kernel's start, and keep in
// scalar registers what only its end needs.
template <class Arguments>
CONVX_DEVICE const Arguments& read_anew(const Arguments& arguments) {
#if defined(CONVX_HIP) && defined(__HIP_DEVICE_COMPILE__)
  auto* start = __builtin_amdgcn_kernarg_segment_ptr();
  asm volatile("" : "+s"(start));
  return *(const Arguments*)start;
#else
  return arguments;
#endif
}

}  // namespace convx
