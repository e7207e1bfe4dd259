// What a library of kernels brings, the CPU's and the GPU's: each registers itself when it is loaded.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "problem/block_problem.h"
#include "problem/device.h"
#include "problem/means_problem.h"
#include "problem/norm_problem.h"
#include "problem/pooling_problem.h"

namespace convx {

struct KernelLibrary {
  // The device with that index, asked once; the CPU with as many threads as torch uses now. The reference
  // lasts as long as the process.
  const DeviceTraits& (*device)(int device_index);
  // Runs a plan of any method but native on the device's current stream. Throws what fails.
  void (*launch)(const Plan&, const ConvProblem&, const Pointers&, int device_index);
  void (*launch_block)(const Plan&, const BlockProblem&, const Pointers&, int device_index);
  // Of both; on GPUs, a problem that pooling::gpu_takes. pointers, here and below: input, result.
  void (*launch_pooling)(const PoolingProblem&, const Pointers&, int device_index);
  // Of CPUs; null of GPUs.
  void (*launch_norm)(const NormProblem&, const Pointers&, int device_index);
  // Of GPUs; null of CPUs. A problem that plane_means::takes.
  void (*launch_means)(const MeansProblem&, const Pointers&, int device_index);
  // Writes the filters in plan.packing's order, on the same stream.
  void (*pack_weight)(const Plan&, const ConvProblem&, const void* weight, void* packed, int device_index);
  // Does the problem's epilogue in place, on dense sums of its layout, on the same stream. false where the
  // library has no kernel for that: nothing was done.
  bool (*finish)(const ConvProblem&, const EpiloguePointers&, void* sums, int device_index);
  bool (*is_capturing)(int device_index);  // what is launched goes into a graph
  uintptr_t alignment;                     // bytes that every tensor's address has to be a multiple of
};

void register_library(bool gpu, const KernelLibrary& library);
const KernelLibrary* find_library(bool gpu);  // null where it is not loaded

}  // namespace convx
