// Products on matrix units: how they are rounded, how deep a step is, and which devices have such units.
#pragma once
#include "problem/device.h"
#include "problem/problem.h"

namespace convx::matrix {

// split is float32 as the sum of two TF32 parts, of whose products three are added. Of packed filters alone,
// float32 as it is: for kernels that round or part what they read.
enum Precision : int { kBfloat16 = 0, kFloat16 = 1, kTf32 = 2, kSplit = 3, kFloat32 = 4 };
constexpr int element_bytes(Precision precision) {
  return precision <= kFloat16 ? 2 : 4;
}
constexpr int parts(Precision precision) {
  return precision == kSplit ? 2 : 1;
}
// Channels of a fragment.
constexpr int step_depth(Precision precision) {
  return 32 / element_bytes(precision);
}

// Of a problem's products, float64 apart. CDNA's units take float32 as it is.
inline Precision precision_of(const ConvProblem& problem, const DeviceTraits& device) {
  if (problem.dtype == DType::bfloat16) return kBfloat16;
  if (problem.dtype == DType::float16) return kFloat16;
  return problem.allow_tf32 || device.backend == Backend::hip ? kTf32 : kSplit;
}

// NVIDIA's since sm_80, AMD's CDNA 2 and 3.
inline bool has_units(const DeviceTraits& device) {
  if (device.backend == Backend::cuda) return device.architecture >= 80;
  return device.lanes == 64 && (device.architecture == 0x90a || device.architecture == 0x942);
}

}  // namespace convx::matrix
