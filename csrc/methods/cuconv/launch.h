// The launching half of the GPU kernels.
#pragma once
#include "plan/method.h"
#include "platform/gpu/stream.h"
#include "problem/sweep.h"

namespace convx::cuconv {

// Values of Plan::kernel.
enum Kernel : int {
  kCpu = 0,       // cpu/
  kProducts = 1,  // stages/: the first stage as published
  kTile = 2,      // tile/: several filters and pixels a thread; one tap, a share of the channels, or all
  kTensor = 3     // tensor/: all taps, or a share of the channels, on the matrix units of sm_90
};

// weight is (groups * filters, channels, filter_height, filter_width) of the sweep. partial, where not null,
// takes planes of sums in accumulators, each in the result's order, instead of result.
struct Operands {
  const void *source, *weight, *bias;
  void *result, *partial;
  Activation activation;
};

using Launch = void(const Plan&, const Sweep&, const Operands&, Stream);
Launch launch_tile_float32, launch_tile_float64, launch_tile_float16, launch_tile_bfloat16;
Launch launch_tensor_tf32, launch_tensor_float16, launch_tensor_bfloat16;

using Pack = void(const Plan&, const Sweep&, const void* weight, void* packed, Stream);
Pack pack_tensor_tf32, pack_tensor_float16, pack_tensor_bfloat16;

}  // namespace convx::cuconv
