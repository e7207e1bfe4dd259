// The product of matrices that a pointwise problem is, for planners and launchers.
#pragma once
#include <cstdint>

#include "problem/problem.h"

namespace convx::pointwise {

inline int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Forward and input_grad: result[rows][pixels] = filters[rows][depth] * source[depth][pixels], for each
// group; pixels are those of the result, over the whole batch. weight_grad: result[rows][columns] =
// output_grad[rows][depth] * input[depth][columns], where depth is the output's pixels.
struct Product {
  int64_t rows, columns, depth;
  bool same_pixels;  // pixel i of the result is made from pixel i of the source
};

inline Product product_of(const ConvProblem& problem) {
  Product product;
  const int64_t outputs = problem.batch * problem.out_height * problem.out_width;
  product.same_pixels = problem.stride_h == 1 && problem.stride_w == 1 && problem.padding_top == 0 &&
                        problem.padding_bottom == 0 && problem.padding_left == 0 &&
                        problem.padding_right == 0;
  switch (problem.operation) {
    case Operation::forward:
      product.rows = problem.out_channels_per_group();
      product.depth = problem.in_channels_per_group();
      product.columns = outputs;
      break;
    case Operation::input_grad:
      product.rows = problem.in_channels_per_group();
      product.depth = problem.out_channels_per_group();
      product.columns = problem.batch * problem.in_height * problem.in_width;
      break;
    case Operation::weight_grad:
      product.rows = problem.out_channels_per_group();
      product.columns = problem.in_channels_per_group();
      product.depth = outputs;
      break;
  }
  return product;
}

}  // namespace convx::pointwise
