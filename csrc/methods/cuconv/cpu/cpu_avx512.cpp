// The cuConv kernels for AVX-512 (F, BW, DQ, VL).
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "methods/cuconv/cpu/job.h"
#include "platform/cpu/memory.h"

// Not sorted: the kernels are for the instruction set that comes before them.
// clang-format off
#include "platform/cpu/isa_avx512.h"
#include "methods/cuconv/cpu/kernels.h"
#include "platform/cpu/isa_end.h"
// clang-format on
