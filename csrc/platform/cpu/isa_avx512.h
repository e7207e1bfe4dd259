// What follows is compiled for AVX-512 (F, BW, DQ, VL); isa_end.h ends it. No #pragma once: included after
// all headers whose functions are for every CPU, once in a source file, before a method's kernels.
#define CONVX_SIMD_NAMESPACE avx512
#define CONVX_SIMD_BYTES 64
#define CONVX_SIMD_REGISTERS 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
