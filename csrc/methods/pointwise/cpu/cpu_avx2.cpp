// The pointwise kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "methods/depthwise/cpu/job.h"
#include "methods/pointwise/cpu/job.h"

#define CONVX_SIMD_NAMESPACE avx2
#define CONVX_SIMD_BYTES 32
#define CONVX_SIMD_REGISTERS 16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "methods/pointwise/cpu/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
