// The launching half of every method but native, by the method of a plan: for each kind of problem one table
// for GPUs and one for the CPU.
#pragma once
#include <cstddef>
#include <stdexcept>

#include "plan/launch.h"
#include "plan/method.h"
#include "problem/block_problem.h"
#include "problem/excite_problem.h"
#include "problem/filter_problem.h"

namespace convx {

template <class Problem>
struct GpuLauncher {
  const MethodOf<Problem>* method;
  void (*launch)(const Plan&, const Problem&, const Pointers&, Stream);
  // Writes the filters in plan.packing's order; null for a method whose plans name none. A block's weight is
  // its BlockWeights.
  void (*pack_weight)(const Plan&, const Problem&, const void* weight, void* packed, Stream);
};

template <class Problem>
struct CpuLauncher {
  const MethodOf<Problem>* method;
  void (*launch)(const Plan&, const Problem&, const Pointers&, const ThreadPool&, CpuIsa);
  void (*pack_weight)(const Plan&, const Problem&, const void* weight, void* packed, const ThreadPool&);
};

// Throw std::logic_error for a plan of a method that has none.
template <class Problem>
const GpuLauncher<Problem>& gpu_launcher(const Plan& plan);
template <class Problem>
const CpuLauncher<Problem>& cpu_launcher(const Plan& plan);
template <>
const GpuLauncher<ConvProblem>& gpu_launcher(const Plan& plan);
template <>
const GpuLauncher<FilterProblem>& gpu_launcher(const Plan& plan);
template <>
const GpuLauncher<BlockProblem>& gpu_launcher(const Plan& plan);
template <>
const GpuLauncher<ExciteProblem>& gpu_launcher(const Plan& plan);
template <>
const CpuLauncher<ConvProblem>& cpu_launcher(const Plan& plan);
template <>
const CpuLauncher<FilterProblem>& cpu_launcher(const Plan& plan);
template <>
const CpuLauncher<BlockProblem>& cpu_launcher(const Plan& plan);
template <>
const CpuLauncher<ExciteProblem>& cpu_launcher(const Plan& plan);

template <class Launcher, size_t Count>
const Launcher& find_launcher(const Launcher (&table)[Count], const Plan& plan) {
  for (const Launcher& launcher : table) {
    if (launcher.method == plan.method) return launcher;
  }
  throw std::logic_error("convx: no launcher for " + describe(plan));
}

}  // namespace convx
