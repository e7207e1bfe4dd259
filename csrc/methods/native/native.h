// torch's own operators as a method: the one that always can. They are run by csrc/torch.
#pragma once
#include "plan/method.h"

namespace convx::native {
extern const Method method;

// convolution: torch's choice, the plan without a candidate's name. im2col: the unfolded columns of an image
// and a product, which torch takes by itself only where cuDNN is switched off. matmul: a product of matrices,
// for filters of one tap.
enum Kernel { kConvolution, kIm2col, kMatmul };
}  // namespace convx::native
