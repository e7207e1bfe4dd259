// Kernels from binaries that were compiled at run time (NVRTC, hipRTC).
#pragma once
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "platform/gpu/launch.h"

namespace convx {

#if defined(CONVX_SIMT)

inline void launch_image(const std::string& /*image*/, const std::string& name, uint32_t /*blocks*/,
                         uint32_t /*threads*/, uint32_t /*shared_bytes*/, Stream /*stream*/,
                         void** /*arguments*/) {
  throw std::logic_error("convx: the host executor has no binary of " + name);
}

#else
namespace detail {

#if defined(CONVX_HIP)
using ImageKernel = hipFunction_t;
inline ImageKernel load_image(const std::string& image, const std::string& name) {
  hipModule_t module;
  check(hipModuleLoadData(&module, image.data()), "hipModuleLoadData");
  hipFunction_t kernel;
  check(hipModuleGetFunction(&kernel, module, name.c_str()), name.c_str());
  return kernel;
}
inline int current_device() {
  int index = 0;
  check(hipGetDevice(&index), "hipGetDevice");
  return index;
}
#elif CUDART_VERSION >= 12080
using ImageKernel = cudaKernel_t;
inline ImageKernel load_image(const std::string& image, const std::string& name) {
  cudaLibrary_t library;
  check(cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        "cudaLibraryLoadData");
  cudaKernel_t kernel;
  check(cudaLibraryGetKernel(&kernel, library, name.c_str()), name.c_str());
  return kernel;
}
#else
using ImageKernel = void*;
inline ImageKernel load_image(const std::string&, const std::string& name) {
  throw std::runtime_error("convx: " + name + " can't be loaded: this convx was built with CUDA " +
                           std::to_string(CUDART_VERSION / 1000) +
                           ", kernels compiled at run time need 12.8");
}
#endif

#if !defined(CONVX_HIP)
// A library of CUDA serves every device.
inline int current_device() {
  return 0;
}
#endif

// Loaded once, for good: plans refer to kernels as long as the process lives. Names are unique to their code.
inline ImageKernel image_kernel(const std::string& image, const std::string& name) {
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::tuple<int, std::string, const void*>, ImageKernel>();
  const std::tuple<int, std::string, const void*> key = {current_device(), name, image.data()};
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded.find(key);
  if (found != loaded.end()) return found->second;
  return loaded[key] = load_image(image, name);
}

}  // namespace detail

// image outlives the process's launches. arguments are the addresses of the kernel's parameters.
inline void launch_image(const std::string& image, const std::string& name, uint32_t blocks, uint32_t threads,
                         uint32_t shared_bytes, Stream stream, void** arguments) {
  const detail::ImageKernel kernel = detail::image_kernel(image, name);
  const auto on = static_cast<RuntimeStream>(stream.handle);
#if defined(CONVX_HIP)
  check(hipModuleLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared_bytes, on, arguments, nullptr),
        name.c_str());
#else
  const void* const function = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          name.c_str());
  }
  check(cudaLaunchKernel(function, dim3(blocks), dim3(threads), arguments, shared_bytes, on), name.c_str());
#endif
}
#endif

}  // namespace convx
