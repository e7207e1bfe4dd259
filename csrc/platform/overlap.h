// Launches that overlap the end of the kernel before them in the stream (programmatic stream serialization,
// sm_90 and later): blocks are placed and set up while the kernel before drains. Before
// wait_for_previous_kernel() such a kernel touches no global memory but packed filters, which are complete
// before the kernel before it begins: a fence follows their packing, or a launch that does not overlap.
#pragma once
#include "platform/launch.h"

namespace convx {

// The next kernel of the stream may be placed from here on; it waits for this one to be complete.
CONVX_DEVICE void allow_next_kernel() {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

CONVX_DEVICE void wait_for_previous_kernel() {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// As launch_kernel; overlap is for devices of sm_90 and later.
template <class... Parameters, class... Arguments>
void launch_overlapped(bool overlap, void (*kernel)(Parameters...), const char* name, Grid grid,
                       uint32_t threads, uint32_t shared_bytes, Stream stream, Arguments... arguments) {
#if defined(CONVX_CUDA)
  if (overlap) {
    if (shared_bytes > 48 * 1024) check(allow_shared(kernel, static_cast<int>(shared_bytes)), name);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = static_cast<RuntimeStream>(stream);
    config.attrs = &attribute;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
    return;
  }
#endif
  (void)overlap;
  launch_kernel(kernel, name, grid, threads, shared_bytes, stream, arguments...);
}

}  // namespace convx
