// The filter order of HNTMP and cuConv, "crsk B": blocks of B output channels, and within a block
// [C][R][S][B], so that neighbouring lanes, which own neighbouring output channels, read neighbouring values,
// and the filters of a few input channels are one piece of memory. The last block is filled up with zeros.
//
// For the input gradient, whose sweep exchanges both channel axes, the order is "crsk B flipped": blocks of B
// input channels, within a block [K][R][S][B], taps reversed.
#pragma once
#include <string>

#include "plan/launch.h"
#include "platform/gpu/stream.h"
#include "problem/device.h"
#include "problem/sweep.h"

namespace convx::packing {

// Sizes of one packed tensor, in elements; "source" and "result" are the sides of the sweep.
struct Crsk {
  int64_t groups, source_channels, result_channels;  // channels of one group
  int64_t taps, block;
  bool flipped;

  int64_t blocks() const { return (result_channels + block - 1) / block; }
  int64_t block_elements() const { return source_channels * taps * block; }
  int64_t elements() const { return groups * blocks() * block_elements(); }
};

inline Crsk crsk_of(const ConvProblem& problem, int64_t block) {
  const Sweep s = sweep_of(problem);
  return {s.groups, s.source_channels, s.result_channels, s.taps(), block, s.exchanges_channels()};
}

// What Plan::packing and Plan::packed_weight_bytes are for a block of that many channels.
inline std::string crsk_name(const ConvProblem& problem, int64_t block) {
  return "crsk " + std::to_string(block) + (crsk_of(problem, block).flipped ? " flipped" : "");
}
inline int64_t crsk_bytes(const ConvProblem& problem, int64_t block) {
  return crsk_of(problem, block).elements() * element_size(problem.dtype);
}

// What packing adds to every input_grad on a CPU, whose filters no layer keeps packed.
inline double crsk_cpu_us(const ConvProblem& problem, const DeviceTraits& device) {
  return static_cast<double>(problem.weight_elements()) * 1.8e-4 / (device.threads > 1 ? device.threads : 1);
}

// Threads of the caller's pool fill parts of packed.
void pack_crsk_cpu(const ConvProblem& problem, int64_t block, const void* weight, void* packed,
                   const ThreadPool& pool);

}  // namespace convx::packing
