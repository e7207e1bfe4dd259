// What a planner may know about the device a problem runs on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "platform/gpu/cluster_size.h"
#include "platform/gpu/query_device.h"
#include "problem/problem.h"

namespace convx {

enum class Backend : uint8_t { cpu, cuda, hip };
enum class CpuIsa : uint8_t { baseline, avx2, avx512 };

struct DeviceTraits {
  Backend backend = Backend::cpu;
  std::string name;            // "NVIDIA H200", "cpu"
  double bandwidth_GBps = 30;  // measured copy traffic (bytes read plus written), or a cautious default
  double fp32_TFLOPs = 0.2;    // multiply-adds counted twice
  // CPU
  int threads = 1;
  CpuIsa isa = CpuIsa::baseline;
  // GPU
  int lanes = 32;  // threads of a warp (wave)
  int multiprocessors = 0;
  double clock_MHz = 0;                // the highest
  int architecture = 0;                // 80, 90, 100 on NVIDIA; 0x906, 0x90a, 0x942, 0x1030 … on AMD
  int shared_bytes_per_block = 49152;  // the opt-in maximum
  int shared_bytes_per_multiprocessor = 0;
  int registers_per_multiprocessor = 65536;
  int threads_per_multiprocessor = 2048;
  static constexpr int64_t kSharedReserve = 1024;  // bytes that CUDA takes for each resident block
  // Cycles in a microsecond of kernels that keep all of the device busy: an H200 holds 1700 MHz.
  double busy_cycles_per_us() const { return clock_MHz * (1700.0 / 1980); }
  bool has_clusters() const { return backend == Backend::cuda && architecture >= 90; }
  // H100, H200 and B200 place clusters of 16; of parts of them, and of others, that is not known.
  int most_cluster_blocks() const {
    const bool is_whole = (architecture == 90 || architecture == 100) && multiprocessors >= 100;
    return !has_clusters() ? 1 : (is_whole ? 2 : 1) * kPortableClusterBlocks;
  }
  bool has_bulk_copy() const { return backend == Backend::cuda && architecture >= 90; }
  bool overlaps_kernels() const { return has_bulk_copy(); }  // programmatic stream serialization
};

// Elements of the accumulator's type in a CPU's vector.
constexpr int vector_lanes(CpuIsa isa, DType dtype) {
  const int bytes = isa == CpuIsa::avx512 ? 64 : isa == CpuIsa::avx2 ? 32 : 16;
  return bytes / (dtype == DType::float64 ? 8 : 4);
}

const char* to_string(Backend value);
const char* to_string(CpuIsa value);  // "baseline", "avx2", "avx512"

// Known devices by name, so that plans can be made and explained on a machine without them: "h200",
// "a100", "b200", "mi250", "mi300", "rx6900", "rx7900", "rx9070", "dcu-z100".
DeviceTraits known_device(const std::string& name);
std::vector<std::string> known_device_names();

// A GPU of this machine, as its runtime describes it; of a known one with what was measured of it.
DeviceTraits gpu_traits(const GpuFacts& facts);

// This machine's CPU: the widest instruction set it and this build have, or what the environment variable
// CONVX_CPU_ISA (baseline, avx2, avx512; read once) asks for, with that many threads of a pool.
DeviceTraits host_cpu(int threads);

}  // namespace convx
