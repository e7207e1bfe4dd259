// Launches that overlap the end of the kernel before them in the stream (programmatic stream serialization,
// sm_90 and later): blocks are placed and set up while the kernel before drains. Such a kernel calls
// take_turn() before it touches global memory. Packed filters alone may be read before: they are complete
// before the kernel before it begins, for a fence follows their packing, or a launch that does not overlap.
#pragma once
#include "platform/gpu/cluster_size.h"
#include "platform/gpu/launch.h"

namespace convx {

// Waits until the kernel before is complete, and only then lets the next be placed: were many to wait, their
// blocks would crowd some multiprocessors while others have none.
CONVX_DEVICE void take_turn() {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#elif defined(CONVX_SIMT)
  simt::take_turn();
#endif
}

// As launch_kernel, for kernels that call take_turn(), and for those of clusters.
template <class... Parameters, class... Arguments>
void launch_in_turn(void (*kernel)(Parameters...), const char* name, Grid grid, uint32_t threads,
                    uint32_t shared_bytes, Stream stream, Arguments... arguments) {
#if defined(CONVX_CUDA)
  if (stream.overlaps || grid.cluster > 1) {
    if (shared_bytes > 48 * 1024) check(allow_shared(kernel, static_cast<int>(shared_bytes)), name);
    cudaLaunchAttribute attributes[2] = {};
    int count = 0;
    if (stream.overlaps) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (grid.cluster > kPortableClusterBlocks) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), name);
    }
    if (grid.cluster > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count].val.clusterDim.x = grid.cluster;
      attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
      ++count;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = static_cast<RuntimeStream>(stream.handle);
    config.attrs = attributes;
    config.numAttrs = count;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
    return;
  }
#endif
  launch_kernel(kernel, name, grid, threads, shared_bytes, stream, arguments...);
#if defined(CONVX_SIMT)
  simt::require_turn(name);
#endif
}

}  // namespace convx
