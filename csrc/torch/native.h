// The native method: torch's own operators, called through its dispatcher. Operands are dense in the
// problem's layout, the weight may have either; results may have either, and share no memory with anything.
#pragma once
#include <optional>

#include "plan/method.h"
#include "torch/epilogue.h"
#include "torch/tensor.h"

namespace convx {

Tensor native_forward(const Plan& plan, const ConvProblem& problem, const Tensor& input, const Tensor& weight,
                      const EpilogueTensors& epilogue);
Tensor native_input_grad(const Plan& plan, const ConvProblem& problem, const Tensor& output_grad,
                         const Tensor& weight);
Tensor native_weight_grad(const Plan& plan, const ConvProblem& problem, const Tensor& input,
                          const Tensor& output_grad);

}  // namespace convx
