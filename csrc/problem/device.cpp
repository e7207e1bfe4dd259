#include "problem/device.h"

#include <algorithm>
#include <cstdlib>

#include "problem/problem.h"

namespace convx {
namespace {

struct KnownDevice {
  const char* key;
  const char* name;
  Backend backend;
  double bandwidth_GBps, fp32_TFLOPs, clock_MHz;
  int lanes, multiprocessors, architecture;
  int shared_bytes_per_block, shared_bytes_per_multiprocessor;
  int registers_per_multiprocessor, threads_per_multiprocessor;
};

constexpr int kKB = 1024;

// H200: ceilings measured with an elementwise copy and a matrix product. The others: nine tenths of the
// makers' bandwidth and eight tenths of their fp32 rate, about what copies and products reach. Clocks are the
// makers' boost clocks.
constexpr KnownDevice kKnownDevices[] = {
    {"a100", "NVIDIA A100", Backend::cuda, 1750, 15.6, 1410, 32, 108, 80, 163 * kKB, 164 * kKB, 65536, 2048},
    {"h200", "NVIDIA H200", Backend::cuda, 4210, 51, 1980, 32, 132, 90, 227 * kKB, 228 * kKB, 65536, 2048},
    {"b200", "NVIDIA B200", Backend::cuda, 7200, 60, 1965, 32, 148, 100, 227 * kKB, 228 * kKB, 65536, 2048},
    {"mi250", "AMD Instinct MI250", Backend::hip, 1400, 18, 1700, 64, 104, 0x90a, 64 * kKB, 64 * kKB, 131072,
     2048},
    {"mi300", "AMD Instinct MI300X", Backend::hip, 4500, 65, 2100, 64, 304, 0x942, 64 * kKB, 64 * kKB, 131072,
     2048},
    {"rx6900", "AMD Radeon RX 6900 XT", Backend::hip, 460, 18, 2250, 32, 80, 0x1030, 64 * kKB, 64 * kKB,
     131072, 1024},
    {"rx7900", "AMD Radeon RX 7900 XTX", Backend::hip, 860, 24, 2500, 32, 96, 0x1100, 64 * kKB, 64 * kKB,
     131072, 1024},
    {"rx9070", "AMD Radeon RX 9070 XT", Backend::hip, 580, 19, 2970, 32, 64, 0x1201, 64 * kKB, 64 * kKB,
     131072, 1024},
    {"dcu-z100", "Hygon DCU Z100", Backend::hip, 900, 8, 1319, 64, 64, 0x906, 64 * kKB, 64 * kKB, 65536,
     2048},
};

CpuIsa widest_isa() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx512 && avx2) return CpuIsa::avx512;
  if (avx2) return CpuIsa::avx2;
#endif
  return CpuIsa::baseline;
}

// CONVX_CPU_ISA narrows what the machine has: how each instruction set is tested on one machine.
CpuIsa requested_isa() {
  const CpuIsa widest = widest_isa();
  const char* text = std::getenv("CONVX_CPU_ISA");
  if (text == nullptr || *text == 0) return widest;
  for (CpuIsa isa : {CpuIsa::baseline, CpuIsa::avx2, CpuIsa::avx512}) {
    if (std::string(text) != to_string(isa)) continue;
    if (isa <= widest) return isa;
    throw InvalidArgument(std::string("CONVX_CPU_ISA asks for ") + text + " but this CPU has at most " +
                          to_string(widest) + "; unset it or ask for less");
  }
  throw InvalidArgument(std::string("CONVX_CPU_ISA must be baseline, avx2 or avx512, got '") + text +
                        "'; unset it to use the widest that this CPU has");
}

// One core's fp32 rate, cautious: two multiply-adds of full width per cycle at 2.5 GHz, at half the peak.
double core_TFLOPs(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::avx512:
      return 0.08;
    case CpuIsa::avx2:
      return 0.04;
    case CpuIsa::baseline:
      return 0.01;
  }
  return 0.01;
}

}  // namespace

const char* to_string(Backend value) {
  constexpr const char* kNames[] = {"cpu", "cuda", "hip"};
  return kNames[static_cast<size_t>(value)];
}

const char* to_string(CpuIsa value) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<size_t>(value)];
}

DeviceTraits known_device(const std::string& name) {
  std::string keys;
  for (const KnownDevice& known : kKnownDevices) {
    keys += std::string(keys.empty() ? "" : ", ") + known.key;
    if (name != known.key) continue;
    DeviceTraits device;
    device.backend = known.backend;
    device.name = known.name;
    device.bandwidth_GBps = known.bandwidth_GBps;
    device.fp32_TFLOPs = known.fp32_TFLOPs;
    device.clock_MHz = known.clock_MHz;
    device.lanes = known.lanes;
    device.multiprocessors = known.multiprocessors;
    device.architecture = known.architecture;
    device.shared_bytes_per_block = known.shared_bytes_per_block;
    device.shared_bytes_per_multiprocessor = known.shared_bytes_per_multiprocessor;
    device.registers_per_multiprocessor = known.registers_per_multiprocessor;
    device.threads_per_multiprocessor = known.threads_per_multiprocessor;
    return device;
  }
  throw InvalidArgument("device must be one of " + keys + "; got '" + name + "'");
}

std::vector<std::string> known_device_names() {
  std::vector<std::string> names;
  for (const KnownDevice& known : kKnownDevices) names.push_back(known.key);
  return names;
}

DeviceTraits gpu_traits(const GpuFacts& facts) {
  DeviceTraits device;
  device.backend = facts.amd ? Backend::hip : Backend::cuda;
  device.name = facts.name;
  device.architecture = facts.architecture;
  device.lanes = facts.lanes;
  device.multiprocessors = facts.multiprocessors;
  device.clock_MHz = facts.clock_kHz * 1e-3;
  device.shared_bytes_per_block = facts.shared_bytes_per_block;
  device.shared_bytes_per_multiprocessor = facts.shared_bytes_per_multiprocessor;
  device.registers_per_multiprocessor = facts.registers_per_multiprocessor;
  device.threads_per_multiprocessor = facts.threads_per_multiprocessor;
  for (const KnownDevice& known : kKnownDevices) {
    if (facts.name.rfind(known.name, 0) != 0) continue;
    device.bandwidth_GBps = known.bandwidth_GBps;
    device.fp32_TFLOPs = known.fp32_TFLOPs;
    return device;
  }
  // Two transfers a clock over the bus; a copy reaches about 0.88 of that (measured on an H200). Products
  // reach about 0.8 of the arithmetic rate.
  device.bandwidth_GBps = 0.88 * 2e-6 * facts.memory_clock_kHz * facts.memory_bus_bits / 8;
  device.fp32_TFLOPs = 0.8 * 2e-9 * facts.clock_kHz * facts.multiprocessors * facts.fp32_lanes;
  return device;
}

DeviceTraits host_cpu(int threads) {
  static const CpuIsa isa = requested_isa();
  DeviceTraits device;
  device.backend = Backend::cpu;
  device.name = "cpu";
  device.isa = isa;
  device.threads = std::max(threads, 1);
  // A core moves about 37 GB/s (measured on two cores of an AVX-512 server); a socket saturates with a few.
  device.bandwidth_GBps = std::min(37.5 * device.threads, 200.0);
  device.fp32_TFLOPs = core_TFLOPs(isa) * device.threads;
  return device;
}

}  // namespace convx
