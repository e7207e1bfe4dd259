#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "platform/gpu/fence.h"
#include "platform/gpu/launch.h"
#include "platform/gpu/query_device.h"

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

}  // namespace

GpuFacts query_device(int index) {
  GpuFacts device;
#if defined(CONVX_HIP)
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, index), "hipGetDeviceProperties");
  device.amd = true;
  // "gfx90a:sramecc+:xnack-"
  const char* digits = std::strncmp(properties.gcnArchName, "gfx", 3) == 0 ? properties.gcnArchName + 3 : "";
  device.architecture = static_cast<int>(std::strtol(digits, nullptr, 16));
  device.fp32_lanes = device.architecture >= 0x1000 ? 128 : 64;
  device.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlock);
  device.shared_bytes_per_multiprocessor = static_cast<int>(properties.sharedMemPerBlock);
#else
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  const int architecture = properties.major * 10 + properties.minor;
  device.architecture = std::min(architecture, code_architecture(index));
  device.fp32_lanes = architecture == 80 || architecture == 75 || architecture == 70 ? 64 : 128;
  device.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  device.shared_bytes_per_multiprocessor = static_cast<int>(properties.sharedMemPerMultiprocessor);
#endif
  device.name = properties.name;
  device.lanes = properties.warpSize;
  device.multiprocessors = properties.multiProcessorCount;
  device.registers_per_multiprocessor = properties.regsPerBlock;
  device.threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor;
  device.clock_kHz = attribute(kClock, index);
  device.memory_clock_kHz = attribute(kMemoryClock, index);
  device.memory_bus_bits = attribute(kBusWidth, index);
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
