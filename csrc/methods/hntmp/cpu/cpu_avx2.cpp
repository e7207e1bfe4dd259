// The HNTMP kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "methods/depthwise/cpu/job.h"
#include "methods/hntmp/cpu/job.h"

// Not sorted: the kernels are for the instruction set that comes before them.
// clang-format off
#include "platform/isa_avx2.h"
#include "methods/hntmp/cpu/kernels.h"
#include "platform/isa_end.h"
// clang-format on
