// The native method's products of matrices, called through torch's dispatcher: plans kIm2col and kMatmul.
#pragma once
#include <optional>

#include "methods/native/native.h"
#include "problem/problem.h"
#include "torch/tensor.h"

namespace convx {

// Operands are dense in the problem's layout, the weight in nchw; results may have either layout.
Tensor product_forward(int kernel, const ConvProblem& problem, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias);
Tensor product_input_grad(int kernel, const ConvProblem& problem, const Tensor& output_grad,
                          const Tensor& weight);
Tensor product_weight_grad(int kernel, const ConvProblem& problem, const Tensor& input,
                           const Tensor& output_grad);

}  // namespace convx
