// Starting a kernel, on CUDA, HIP and the host executor. Launchers (launch*.cu) include this.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "platform/gpu/platform.h"
#include "platform/gpu/stream.h"

namespace convx {

// Calls body(std::integral_constant<int, Lanes>) for the warp width of a plan. NVIDIA GPUs have one width, so
// that one alone is compiled for them.
template <class Body>
void with_lanes(int64_t lanes, const Body& body) {
#if defined(CONVX_CUDA)
  if (lanes != 32) throw std::runtime_error("convx: a plan for " + std::to_string(lanes) + " lanes on CUDA");
  body(std::integral_constant<int, 32>());
#else
  if (lanes == 32) {
    body(std::integral_constant<int, 32>());
  } else {
    body(std::integral_constant<int, 64>());
  }
#endif
}

inline bool is_aligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

struct Grid {
  uint32_t x = 1, y = 1, z = 1;
  uint32_t cluster = 1;  // blocks along x that are one: of launch_in_turn
};

#if !defined(CONVX_SIMT)
#if defined(CONVX_HIP)
using RuntimeError = hipError_t;
using RuntimeStream = hipStream_t;
inline RuntimeError last_error() {
  return hipGetLastError();
}
inline const char* error_text(RuntimeError error) {
  return hipGetErrorString(error);
}
template <class Kernel>
RuntimeError allow_shared(Kernel kernel, int bytes) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             hipFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
#else
using RuntimeError = cudaError_t;
using RuntimeStream = cudaStream_t;
inline RuntimeError last_error() {
  return cudaGetLastError();
}
inline const char* error_text(RuntimeError error) {
  return cudaGetErrorString(error);
}
template <class Kernel>
RuntimeError allow_shared(Kernel kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
#endif
inline void check(RuntimeError error, const char* what) {
  if (error != RuntimeError(0)) {
    throw std::runtime_error(std::string("convx: ") + what + " failed: " + error_text(error));
  }
}

// Raises launch errors at the call. Dynamic shared memory past the 48 KB default is opted into.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), const char* name, Grid grid, uint32_t threads,
                   uint32_t shared_bytes, Stream stream, Arguments... arguments) {
  if (shared_bytes > 48 * 1024) check(allow_shared(kernel, static_cast<int>(shared_bytes)), name);
  kernel<<<dim3(grid.x, grid.y, grid.z), dim3(threads), shared_bytes,
           static_cast<RuntimeStream>(stream.handle)>>>(static_cast<Parameters>(arguments)...);
  check(last_error(), name);
}
#else
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), const char* name, Grid grid, uint32_t threads,
                   uint32_t shared_bytes, Stream /*stream*/, Arguments... arguments) {
  simt::launch(
      name, simt::Extent{grid.x, grid.y, grid.z}, threads, shared_bytes,
      [=] { kernel(static_cast<Parameters>(arguments)...); }, grid.cluster);
}
#endif

}  // namespace convx
