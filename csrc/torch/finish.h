// An epilogue as passes of its own, over sums that have none of it.
#pragma once
#include "torch/epilogue.h"
#include "torch/tensor.h"

namespace convx {

// The activation alone; the sums themselves where there is none.
Tensor activate(const ConvProblem& problem, const Tensor& sums);

// All of the problem's epilogue. sums are of the output's shape; epilogue: dense_epilogue of the problem's
// layout. The result shares no memory with the operands.
Tensor finish(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue);

}  // namespace convx
