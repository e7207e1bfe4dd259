// What differs between the CPU and the GPU operator library: each links one implementation of this.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "problem/device.h"

// The dispatch key that this library's kernels are registered for. ROCm torch calls its GPUs CUDA too.
#if defined(CONVX_GPU)
#define CONVX_DISPATCH_KEY CUDA
#else
#define CONVX_DISPATCH_KEY CPU
#endif

namespace convx {

// Bytes that every tensor argument's address is a multiple of.
#if defined(CONVX_GPU)
constexpr uintptr_t kArgumentAlignment = 16;
#else
constexpr uintptr_t kArgumentAlignment = 1;
#endif

// The device with that index, queried once; on the CPU, with as many threads as torch uses now. The
// reference lasts as long as the process.
const DeviceTraits& device_traits(int32_t device_index);

// Runs a plan of any method but native on the device's current stream. Raises what fails. Of problems of any
// kind.
template <class Problem>
void launch(const Plan& plan, const Problem& problem, const Pointers& pointers, int32_t device_index);

// Writes the filters in plan.packing's order, on the same stream.
template <class Problem>
void pack_weight(const Plan& plan, const Problem& problem, const void* weight, void* packed,
                 int32_t device_index);

// Does the problem's epilogue in place, on dense sums of its layout, on the same stream. false where there is
// no kernel for that: nothing was done.
bool finish_in_place(const ConvProblem& problem, const EpiloguePointers& epilogue, void* sums,
                     int32_t device_index);

// Whatever is launched on the stream from here on begins when all before is complete: packed filters that are
// kept are read by kernels that overlap the one before them.
void complete_packing(int32_t device_index);

// Makes the device current for the calls into torch and the launches in its scope.
class DeviceScope {
 public:
  explicit DeviceScope(int32_t device_index);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  void* guard_ = nullptr;
};

}  // namespace convx
