// The kernels of filter2d for AVX2 with FMA and F16C.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "methods/filter2d/cpu/job.h"
#include "platform/cpu/memory.h"

// Not sorted: the kernels are for the instruction set that comes before them.
// clang-format off
#include "platform/cpu/isa_avx2.h"
#include "methods/filter2d/cpu/kernels.h"
#include "platform/cpu/isa_end.h"
// clang-format on
