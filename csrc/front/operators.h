// convx's operators, through torch's dispatcher: what the front has no way of its own for.
#pragma once
#include "front/engine.h"

namespace convx::front {

// With the choice of a prepared call; recorded by autograd where that is on.
Tensor conv2d(const Prepared& prepared, const Tensor& input, const Tensor& weight,
              const std::optional<Tensor>& bias);
Tensor conv2d_input_grad(const Prepared& prepared, const Tensor& output_grad, const Tensor& weight);
Tensor conv2d_weight_grad(const Prepared& prepared, const Tensor& input, const Tensor& output_grad);

}  // namespace convx::front
