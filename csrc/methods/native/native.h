// torch's own operators as a method: the one that always can. They are run by csrc/torch.
#pragma once
#include "plan/method.h"

namespace convx::native {
extern const Method method;

// convolution: torch's choice, the plan without a candidate's name. im2col: the unfolded columns of an image
// and a product, which torch takes by itself only where cuDNN is switched off. matmul: a product of matrices,
// for filters of one tap. fused: cuDNN's convolution that adds bias and residual and clamps as it writes;
// some of its kernels make zero of NaN, so that auto takes it where convx.tune has seen NaN kept alone.
enum Kernel { kConvolution, kIm2col, kMatmul, kFused };

// Whether torch's convolution adds the bias as it writes its results. The libraries that it has on GPUs do
// not: there torch takes a pass of its own for that, but for depthwise layers, whose kernels are torch's.
inline bool adds_bias(const ConvProblem& problem, Backend backend) {
  return backend == Backend::cpu || problem.is_depthwise();
}

// Whether torch goes group by group, image by image: in 16 bits oneDNN has convolutions of groups for CPUs
// with AVX-512 alone. That takes so long that estimates tell.
inline bool goes_by_groups(const ConvProblem& problem, const DeviceTraits& device) {
  return device.backend == Backend::cpu && device.isa != CpuIsa::avx512 && problem.groups > 1 &&
         element_size(problem.dtype) == 2;
}
}  // namespace convx::native
