// A point that later kernels of a stream do not overtake.
#pragma once
#include "platform/stream.h"

namespace convx {

// Kernels launched after it begin when all before it are complete, those too that overlap the end of the
// kernel before them: such a one reads packed filters before that kernel is complete (overlap.h).
void launch_fence(Stream stream);

}  // namespace convx
