// What follows is compiled for AVX2 with FMA and F16C; isa_end.h ends it. No #pragma once: included after all
// headers whose functions are for every CPU, once in a source file, before a method's kernels.
#define CONVX_SIMD_NAMESPACE avx2
#define CONVX_SIMD_BYTES 32
#define CONVX_SIMD_REGISTERS 16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
