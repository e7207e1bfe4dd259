// The launching half of the GPU kernels.
#pragma once
#include "methods/epilogue.h"
#include "methods/matrix/precision.h"
#include "plan/method.h"
#include "platform/gpu/stream.h"
#include "problem/sweep.h"

namespace convx::cuconv {

// Values of Plan::kernel.
enum Kernel : int {
  kCpu = 0,       // cpu/
  kProducts = 1,  // stages/: the first stage as published
  kTile = 2,      // tile/: several filters and pixels a thread; one tap, a share of the channels, or all
  kTensor = 3,    // tensor/: all taps, or a share of the channels, on the matrix units of sm_90
  kDeep = 4       // deep/: few pixels on any matrix units, in either layout
};

// Of a block of stages/, for which several blocks have the same filter row where there are more pixels.
constexpr int kMostProductThreads = 1024;

// weight is (groups * filters, channels, filter_height, filter_width) of the sweep, or packed, and
// plain_weight in torch's order. partial, where not null, takes planes of sums in accumulators, each in the
// result's order, instead of result.
struct Operands {
  const void *source, *weight, *plain_weight;
  void *result, *partial;
  bool planes;        // as of NCHW, not rows of channels
  Epilogue epilogue;  // none of gradients
  EpiloguePointers epilogue_pointers;

  template <class T>
  const T* bias() const {
    return initial_bias<T>(epilogue, epilogue_pointers);
  }
  template <class T>
  Finishing<T> finishing() const {
    return finishing_of<T>(epilogue, epilogue_pointers, result);
  }
};

using Launch = void(const Plan&, const Sweep&, const Operands&, Stream);
using Pack = void(const Plan&, const Sweep&, const void* weight, void* packed, Stream);

// Defined in each folder's launch.cuh, one translation unit for each element type or precision.
namespace tile {
template <class T>
void launch_typed(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream);
}
namespace tensor {
template <matrix::Precision Kind>
void launch_precision(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream);
template <matrix::Precision Kind>
void pack_precision(const Plan& plan, const Sweep& sweep, const void* weight, void* packed, Stream stream);
}  // namespace tensor
namespace deep {
template <matrix::Precision Kind>
void launch_precision(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream);
template <matrix::Precision Kind>
void pack_precision(const Plan& plan, const Sweep& sweep, const void* weight, void* packed, Stream stream);
}  // namespace deep

}  // namespace convx::cuconv
