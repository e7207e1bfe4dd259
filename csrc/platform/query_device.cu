#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "platform/fence.h"
#include "platform/launch.h"
#include "platform/query_device.h"

#if !defined(CONVX_SIMT)
namespace convx {
namespace {

#if defined(CONVX_HIP)
using Attribute = hipDeviceAttribute_t;
constexpr Attribute kMemoryClock = hipDeviceAttributeMemoryClockRate,
                    kBusWidth = hipDeviceAttributeMemoryBusWidth, kClock = hipDeviceAttributeClockRate;
int attribute(Attribute which, int index) {
  int value = 0;
  check(hipDeviceGetAttribute(&value, which, index), "hipDeviceGetAttribute");
  return value;
}
#else
using Attribute = cudaDeviceAttr;
constexpr Attribute kMemoryClock = cudaDevAttrMemoryClockRate, kBusWidth = cudaDevAttrGlobalMemoryBusWidth,
                    kClock = cudaDevAttrClockRate;
int attribute(Attribute which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "cudaDeviceGetAttribute");
  return value;
}
#endif

// Multiply-adds that a multiprocessor issues in a cycle.
int fp32_lanes([[maybe_unused]] int architecture) {
#if defined(CONVX_HIP)
  return architecture >= 0x1000 ? 128 : 64;
#else
  return architecture == 80 || architecture == 75 || architecture == 70 ? 64 : 128;
#endif
}

}  // namespace

DeviceTraits query_device(int index) {
  DeviceTraits device;
#if defined(CONVX_HIP)
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, index), "hipGetDeviceProperties");
  device.backend = Backend::hip;
  // "gfx90a:sramecc+:xnack-"
  const char* digits = std::strncmp(properties.gcnArchName, "gfx", 3) == 0 ? properties.gcnArchName + 3 : "";
  device.architecture = static_cast<int>(std::strtol(digits, nullptr, 16));
  device.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlock);
  device.shared_bytes_per_multiprocessor = static_cast<int>(properties.sharedMemPerBlock);
#else
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  device.backend = Backend::cuda;
  device.architecture = properties.major * 10 + properties.minor;
  device.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  device.shared_bytes_per_multiprocessor = static_cast<int>(properties.sharedMemPerMultiprocessor);
#endif
  device.name = properties.name;
  device.lanes = properties.warpSize;
  device.multiprocessors = properties.multiProcessorCount;
  device.registers_per_multiprocessor = properties.regsPerBlock;
  device.threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor;
  // Two transfers a clock over the bus; a copy reaches about 0.88 of that (measured on an H200). Products
  // reach about 0.8 of the arithmetic rate.
  device.bandwidth_GBps = 0.88 * 2e-6 * attribute(kMemoryClock, index) * attribute(kBusWidth, index) / 8;
  device.fp32_TFLOPs = 0.8 * 2e-9 * attribute(kClock, index) * properties.multiProcessorCount *
                       fp32_lanes(device.architecture);
  for (const std::string& known : known_device_names()) {
    const DeviceTraits measured = known_device(known);
    if (device.name.rfind(measured.name, 0) != 0) continue;
    device.bandwidth_GBps = measured.bandwidth_GBps;
    device.fp32_TFLOPs = measured.fp32_TFLOPs;
  }
#if defined(CONVX_CUDA)
  // Plans are for the code that there is.
  device.architecture = std::min(device.architecture, code_architecture(index));
#endif
  return device;
}

#if defined(CONVX_HIP)
bool is_capturing(Stream stream) {
  hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
  check(hipStreamIsCapturing(static_cast<hipStream_t>(stream.handle), &status), "hipStreamIsCapturing");
  return status != hipStreamCaptureStatusNone;
}
#else
bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}
#endif

}  // namespace convx
#endif
