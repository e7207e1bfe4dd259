// Epilogues that kernels with many sums can have.
#pragma once
#include "problem/problem.h"

namespace convx {

// No more than a bias and an activation but gelu: the code of others costs registers.
inline bool has_short_epilogue(const ConvProblem& problem) {
  return !problem.epilogue.is_more_than_bias() && problem.epilogue.activation != Activation::gelu;
}

}  // namespace convx
