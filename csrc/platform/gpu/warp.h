// Barriers, shuffles and sums over the lanes of a warp. All lanes of the warp take part in each call.
#pragma once
#include "platform/gpu/numeric.h"

namespace convx {

#if defined(CONVX_SIMT)
// block_barrier, block_barrier_any, warp_barrier<Lanes>, shuffle<Lanes>, shuffle_xor<Lanes>: see
// tests/host/simt/simt.h, which checks that every lane arrives and that no source lies outside the warp.
using simt::block_barrier;
using simt::block_barrier_any;
using simt::shuffle;
using simt::shuffle_xor;
using simt::warp_barrier;
#else
CONVX_DEVICE void block_barrier() {
  __syncthreads();
}
// Whether it is true of any of the block's threads.
CONVX_DEVICE bool block_barrier_any(bool vote) {
  return __syncthreads_or(vote) != 0;
}
#if defined(CONVX_CUDA)
// Orders the warp's shared-memory accesses before and after it.
template <int Lanes>
CONVX_DEVICE void warp_barrier() {
  __syncwarp();
}
template <int Lanes, class T>
CONVX_DEVICE T shuffle(T value, int source_lane) {
  return __shfl_sync(0xffffffffu, value, source_lane);
}
template <int Lanes, class T>
CONVX_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
#else
template <int Lanes>
CONVX_DEVICE void warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <int Lanes, class T>
CONVX_DEVICE T shuffle(T value, int source_lane) {
  return __shfl(value, source_lane, Lanes);
}
template <int Lanes, class T>
CONVX_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask, Lanes);
}
#endif
#endif

// Sum over aligned segments of Width lanes; every lane gets its segment's sum, in the same order each time.
template <int Lanes, int Width, class T>
CONVX_DEVICE T segment_sum(T value) {
  static_assert(Width <= Lanes && (Width & (Width - 1)) == 0, "Width is a power of two within the warp");
  CONVX_UNROLL
  for (int mask = Width / 2; mask > 0; mask /= 2) value += shuffle_xor<Lanes>(value, mask);
  return value;
}

// AMD GPUs keep what is the same for all lanes in about a hundred scalar registers; a kernel with more of it
// moves some to the lanes' registers by this.
template <class T>
CONVX_DEVICE void keep_per_lane(T& value) {
#if defined(CONVX_HIP) && defined(__HIP_DEVICE_COMPILE__)
  asm volatile("" : "+v"(value));
#else
  (void)value;
#endif
}

}  // namespace convx
