// The cuConv kernels for any x86-64: SSE2.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "methods/cuconv/cpu/job.h"
#include "methods/depthwise/cpu/job.h"

#define CONVX_SIMD_NAMESPACE baseline
#define CONVX_SIMD_BYTES 16
#define CONVX_SIMD_REGISTERS 16

#include "methods/cuconv/cpu/kernels.h"
