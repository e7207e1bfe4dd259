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

// What stands before is not scheduled after, nor the other way round, where a compiler would else issue all
// of a long body's loads first and run out of registers.
CONVX_DEVICE void schedule_barrier() {
#if defined(CONVX_HIP) && defined(__HIP_DEVICE_COMPILE__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

}  // namespace convx
