// The product of matrices that a pointwise problem is, for planners and launchers.
#pragma once
#include "methods/matrix/product.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::pointwise {

// Forward and input_grad: result[rows][pixels] = filters[rows][depth] * source[depth][pixels], for each
// group; pixels are those of the result, over the whole batch. weight_grad: result[rows][columns] =
// output_grad[rows][depth] * input[depth][columns], where depth is the output's pixels.
using matrix::Product;

inline Product product_of(const ConvProblem& problem) {
  const Sweep s = sweep_of(problem);
  const int64_t pixels = problem.batch * s.result_plane();
  const bool same_pixels = problem.stride_h == 1 && problem.stride_w == 1 && problem.padding_top == 0 &&
                           problem.padding_bottom == 0 && problem.padding_left == 0 &&
                           problem.padding_right == 0;
  if (problem.operation == Operation::weight_grad) {
    return {s.result_channels, s.source_channels, pixels, same_pixels};
  }
  return {s.result_channels, pixels, s.source_channels, same_pixels};
}

}  // namespace convx::pointwise
