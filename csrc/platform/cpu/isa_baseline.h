// What follows is compiled for any x86-64: SSE2; isa_end.h ends it. No #pragma once: included after all
// headers whose functions are for every CPU, once in a source file, before a method's kernels.
#define CONVX_SIMD_NAMESPACE baseline
#define CONVX_SIMD_BYTES 16
#define CONVX_SIMD_REGISTERS 16
