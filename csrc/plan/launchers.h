// The launching half of every method but native, by the method of a plan: one table for GPUs, one for the
// CPU.
#pragma once
#include "plan/launch.h"
#include "plan/method.h"

namespace convx {

struct GpuLauncher {
  const Method* method;
  void (*launch)(const Plan&, const ConvProblem&, const Pointers&, Stream);
  // Writes the filters in plan.packing's order; null for a method whose plans name none.
  void (*pack_weight)(const Plan&, const ConvProblem&, const void* weight, void* packed, Stream);
};

struct CpuLauncher {
  const Method* method;
  void (*launch)(const Plan&, const ConvProblem&, const Pointers&, const ThreadPool&, CpuIsa);
  void (*pack_weight)(const Plan&, const ConvProblem&, const void* weight, void* packed, const ThreadPool&);
};

// Throw std::logic_error for a plan of a method that has none.
const GpuLauncher& gpu_launcher(const Plan& plan);
const CpuLauncher& cpu_launcher(const Plan& plan);

}  // namespace convx
