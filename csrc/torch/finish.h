// An epilogue as passes of its own, over sums that have none of it.
#pragma once
#include "torch/epilogue.h"
#include "torch/tensor.h"

namespace convx {

// All of the problem's epilogue. sums are of the output's shape, nobody else's, and may be written to;
// epilogue: dense_epilogue of the problem's layout.
Tensor finish(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue);

}  // namespace convx
