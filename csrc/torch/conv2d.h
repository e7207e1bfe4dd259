// The operator convx::conv2d, for operators that are made of convolutions.
#pragma once
#include <optional>
#include <vector>

#include "torch/tensor.h"
#include "torch/text.h"

namespace convx {

// As the schema has it.
Tensor conv2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
              const std::vector<int64_t>& dilation, int64_t groups, const Text& activation,
              const Text& algorithm, int64_t tf32, const std::optional<Tensor>& packed_weight,
              const std::optional<Tensor>& residual, const std::optional<Tensor>& scale,
              bool residual_after_activation);

}  // namespace convx
