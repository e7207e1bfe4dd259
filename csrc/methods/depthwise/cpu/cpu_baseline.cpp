// The depthwise kernels for any x86-64: SSE2.
#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "methods/depthwise/cpu/job.h"
#include "platform/cpu/memory.h"

// Not sorted: the kernels are for the instruction set that comes before them.
// clang-format off
#include "platform/cpu/isa_baseline.h"
#include "methods/depthwise/cpu/kernels.h"
// clang-format on
