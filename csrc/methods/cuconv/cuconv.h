// Dense convolution as scalar products along the channels, "cuConv: CUDA implementation of convolution for
// CNN inference" (Jordà, Valero-Lara, Peña 2021): NCHW as it is, filters as they are, lanes along output
// pixels.
//
// two_stage is the paper's, by name alone: a block takes one filter row (k, r, s) and the pixels of all
// images, a plane of partial sums a tap, and a second kernel adds the planes. two_stage_blocked takes several
// filters and pixels a thread, split gives each plane a share of the channels instead of a tap, and fused
// sums everything inside a block. tensor is the fused form on matrix units, of 16 bits, TF32 and float32 in
// two parts on sm_90 (tensor/): a tap's product takes the source window from the tap's offset on, and sums of
// all taps stay in registers. deep is it for few pixels, as of one image, in either layout and on any matrix
// units: warps and blocks share out the channels of all taps (methods/deep/).
#pragma once
#include "plan/launch.h"
#include "plan/method.h"

namespace convx::cuconv {

extern const Method method;

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream);
void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa);
void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool);

}  // namespace convx::cuconv
