// What a runtime tells of its devices, and of their streams.
#pragma once
#include <string>

#include "platform/gpu/stream.h"

namespace convx {

// Bytes, and counts of one device; clocks in kHz.
struct GpuFacts {
  bool amd = false;
  std::string name;
  int architecture = 0;  // 90 for sm_90, 0x90a for gfx90a: the newest that there is code for
  int lanes = 32;        // of a warp (wave)
  int multiprocessors = 0;
  int fp32_lanes = 0;  // multiply-adds that a multiprocessor issues in a cycle
  int shared_bytes_per_block = 0, shared_bytes_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0, threads_per_multiprocessor = 0;
  int clock_kHz = 0, memory_clock_kHz = 0, memory_bus_bits = 0;
};

GpuFacts query_device(int index);

// Whether what is launched goes into a graph.
bool is_capturing(Stream stream);

}  // namespace convx
