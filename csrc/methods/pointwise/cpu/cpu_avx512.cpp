// The pointwise kernels for AVX-512 (F, BW, DQ, VL).
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

#define CONVX_SIMD_NAMESPACE avx512
#define CONVX_SIMD_BYTES 64
#define CONVX_SIMD_REGISTERS 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#include "methods/pointwise/cpu/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
