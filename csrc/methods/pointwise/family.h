// The kernel families of pointwise: each has a folder with its plan (host only), kernel and launcher.
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/method.h"

namespace convx::pointwise {

// Values of Plan::kernel.
enum Kernel : int {
  kFma = 0,        // fma/: any dtype and layout, all operations, on the arithmetic units of every GPU
  kFmaWeight = 1,  // fma/: weight_grad
  kTensor = 2,     // tensor/: nchw forward and input_grad on matrix units
  kGenerated = 3,  // generator/: forward, kernels that convx.tune compiled for this very problem
  // cpu/, tilings of generator/: forward and input_grad with vector lanes along pixels or along filters
  kCpuPixels = 4,
  kCpuFilters = 5,
  kCpuWeight = 6,  // cpu/: weight_grad
  kShallow = 7,    // shallow/: channels_last forward and input_grad of few channels on matrix units
  kDeep = 8,       // deep/: forward and input_grad of few pixels on matrix units
};

// Adds every plan that can run the problem, none where the family can't.
using Append = void(const ConvProblem&, const DeviceTraits&, std::vector<Plan>&);
Append append_fma, append_fma_weight, append_tensor, append_shallow, append_deep, append_generated;
Append append_cpu, append_cpu_weight;

// Launching half, in the GPU library alone.
using Launch = void(const Plan&, const ConvProblem&, const Pointers&, Stream);
Launch launch_fma, launch_fma_weight, launch_tensor, launch_shallow, launch_deep, launch_generated;

using PackWeight = void(const Plan&, const ConvProblem&, const void* weight, void* packed, Stream);
PackWeight pack_transposed, pack_fragments, pack_deep;

}  // namespace convx::pointwise
