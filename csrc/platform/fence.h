// Whether kernels of a stream may overlap, and a point that later ones do not overtake.
#pragma once
#include "platform/stream.h"

namespace convx {

// Whether this library's kernels, as they are loaded on a device, wait for the one before (overlap.h). Those
// that the driver makes of code for older GPUs do not.
bool kernels_take_turns(int device_index);

// Kernels launched after it begin when all before it are complete, those too that overlap the end of the
// kernel before them: such a one reads packed filters before that kernel is complete (overlap.h).
void launch_fence(Stream stream);

}  // namespace convx
