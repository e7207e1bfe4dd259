// The pointwise kernels for any x86-64: SSE2.
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

#define CONVX_SIMD_NAMESPACE baseline
#define CONVX_SIMD_BYTES 16
#define CONVX_SIMD_REGISTERS 16

#include "methods/pointwise/cpu/kernels.h"
