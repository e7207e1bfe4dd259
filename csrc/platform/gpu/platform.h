// The only place that knows CUDA, HIP and the host executor (tests/host/simt). Kernels include this header
// alone.
//
// Inside kernels threadIdx, blockIdx, blockDim and gridDim are the usual ones on all three. A kernel is a
// template on Lanes, the threads of a warp; CONVX_SKIP_OTHER_WARPS(Lanes) as its first statement empties the
// body where the device compiles for the other width.
#pragma once
#include <cstddef>
#include <cstdint>

#include "platform/gpu/hip.h"

#if defined(CONVX_SIMT)
#include "simt.h"  // tests/host/simt: kernels as plain C++
#elif defined(CONVX_HIP)
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define CONVX_CUDA 1
#endif

#define CONVX_UNROLL _Pragma("unroll")
#define CONVX_UNROLL_TWICE _Pragma("unroll 2")
#define CONVX_UNROLL_THRICE _Pragma("unroll 3")
#define CONVX_NO_UNROLL _Pragma("unroll 1")

#if defined(CONVX_SIMT)
#define CONVX_DEVICE inline
#define CONVX_KERNEL(threads, min_blocks) inline void
#define CONVX_SHARED(type, name, dims) SIMT_SHARED(type, name, dims)
#define CONVX_DYNAMIC_SHARED(name) unsigned char* const name = SIMT_DYNAMIC_SHARED()
#define CONVX_SKIP_OTHER_WARPS(lanes) static_assert((lanes) == 32 || (lanes) == 64, "lanes")
#undef CONVX_UNROLL
#undef CONVX_UNROLL_TWICE
#undef CONVX_UNROLL_THRICE
#undef CONVX_NO_UNROLL
#define CONVX_UNROLL
#define CONVX_UNROLL_TWICE
#define CONVX_UNROLL_THRICE
#define CONVX_NO_UNROLL
#else
#define CONVX_DEVICE __device__ __forceinline__
#if defined(CONVX_CUDA)
#define CONVX_KERNEL(threads, min_blocks) __global__ void __launch_bounds__(threads, min_blocks)
#else
// HIP's second bound counts waves of a SIMD, not blocks; the compiler weighs occupancy well without it.
#define CONVX_KERNEL(threads, min_blocks) __global__ void __launch_bounds__(threads)
#endif
// For kernels whose registers just fit: the same code needs some more on sm_100.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define CONVX_TIGHT_BLOCKS(blocks) ((blocks) - 1)
#else
#define CONVX_TIGHT_BLOCKS(blocks) (blocks)
#endif
#define CONVX_SHARED(type, name, dims) __shared__ type name dims
#define CONVX_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#if defined(CONVX_CUDA)
#define CONVX_SKIP_OTHER_WARPS(lanes) static_assert((lanes) == 32, "NVIDIA warps have 32 lanes")
#elif defined(__GFX9__)
#define CONVX_SKIP_OTHER_WARPS(lanes) \
  if ((lanes) != 64) return
#else
#define CONVX_SKIP_OTHER_WARPS(lanes) \
  if ((lanes) != 32) return
#endif
#endif

#include "platform/gpu/fast_divide.h"
#include "platform/gpu/numeric.h"
#include "platform/gpu/unroll.h"
#include "platform/gpu/vector.h"
#include "platform/gpu/warp.h"
