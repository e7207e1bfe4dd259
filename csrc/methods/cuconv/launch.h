// The launching half of the GPU kernels.
#pragma once
#include "methods/cuconv/sweep.h"
#include "methods/epilogue.h"
#include "plan/method.h"
#include "platform/gpu/stream.h"

namespace convx::cuconv {

// Values of Plan::kernel.
enum Kernel : int {
  kCpu = 0,       // cpu/
  kProducts = 1,  // stages/: the first stage as published
  kTile = 2,      // tile/: several filters and pixels a thread; one tap, a share of the channels, or all
  kWarpgroup = 3  // warpgroup/: all taps, or a share of the channels, on the matrix units of sm_90
};

// weight is (groups * filters, channels, filter_height, filter_width) of the sweep. partial, where not null,
// takes planes of sums in accumulators, each in the result's order, instead of result.
struct Operands {
  const void *source, *weight;
  void *result, *partial;
  Epilogue epilogue;  // none of gradients
  EpiloguePointers epilogue_pointers;

  template <class T>
  EpilogueArguments<T> finishing() const {
    return epilogue_arguments<T>(epilogue, epilogue_pointers, result);
  }
};

using Launch = void(const Plan&, const Sweep&, const Operands&, Stream);
Launch launch_tile_float32, launch_tile_float64, launch_tile_float16, launch_tile_bfloat16;
Launch launch_warpgroup_tf32, launch_warpgroup_float16, launch_warpgroup_bfloat16;

using Pack = void(const Plan&, const Sweep&, bool flipped, const void* weight, void* packed, Stream);
Pack pack_warpgroup_tf32, pack_warpgroup_float16, pack_warpgroup_bfloat16;

}  // namespace convx::cuconv
