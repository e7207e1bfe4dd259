// Whether kernels of a stream may overlap, and a point that later ones do not overtake.
#pragma once
#include "platform/gpu/stream.h"

namespace convx {

// What this library's kernels, as they are loaded on a device, were compiled for: __CUDA_ARCH__ over ten, 0
// on HIP. Less than the device's own where the driver makes them of code for older GPUs, and then without
// what is compiled for newer ones alone.
int code_architecture(int device_index);

// Whether this library's kernels, as they are loaded on a device, wait for the one before (overlap.h). Those
// that the driver makes of code for older GPUs do not.
bool kernels_take_turns(int device_index);

// Kernels launched after it begin when all before it are complete, those too that overlap the end of the
// kernel before them: such a one reads packed filters before that kernel is complete (overlap.h).
void launch_fence(Stream stream);

}  // namespace convx
