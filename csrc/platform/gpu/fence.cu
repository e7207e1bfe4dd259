#include "platform/gpu/fence.h"
#include "platform/gpu/launch.h"

namespace convx {
namespace {

CONVX_KERNEL(32, 1) fence_kernel() {}

}  // namespace

#if defined(CONVX_CUDA)
int code_architecture(int device_index) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  check(cudaSetDevice(device_index), "cudaSetDevice");
  cudaFuncAttributes attributes = {};
  check(cudaFuncGetAttributes(&attributes, fence_kernel), "cudaFuncGetAttributes");
  check(cudaSetDevice(current), "cudaSetDevice");
  return attributes.ptxVersion;
}
#else
int code_architecture(int) {
  return 0;
}
#endif

bool kernels_take_turns(int device_index) {
  return code_architecture(device_index) >= 90;
}

void launch_fence(Stream stream) {
  launch_kernel(fence_kernel, "fence", Grid{}, 32, 0, stream);
}

}  // namespace convx
