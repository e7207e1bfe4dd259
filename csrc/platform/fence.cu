#include "platform/fence.h"
#include "platform/launch.h"

namespace convx {
namespace {

CONVX_KERNEL(32, 1) fence_kernel() {}

}  // namespace

#if defined(CONVX_CUDA)
bool kernels_take_turns(int device_index) {
  constexpr int kFirstPtx = 90;  // as __CUDA_ARCH__ was, over ten
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  check(cudaSetDevice(device_index), "cudaSetDevice");
  cudaFuncAttributes attributes = {};
  check(cudaFuncGetAttributes(&attributes, fence_kernel), "cudaFuncGetAttributes");
  check(cudaSetDevice(current), "cudaSetDevice");
  return attributes.ptxVersion >= kFirstPtx;
}
#else
bool kernels_take_turns(int) {
  return false;
}
#endif

void launch_fence(Stream stream) {
  launch_kernel(fence_kernel, "fence", Grid{}, 32, 0, stream);
}

}  // namespace convx
