// Squeeze-and-excitation, for operators that have one inside.
#pragma once
#include <optional>

#include "problem/excite_problem.h"
#include "torch/tensor.h"
#include "torch/text.h"

namespace convx {

struct ExciteTensors {
  const Tensor& squeeze;
  const std::optional<Tensor>& squeeze_bias;
  const Tensor& excite;
  const std::optional<Tensor>& excite_bias;
};

// Checks them for an input of so many channels. The number of channels that those are squeezed to.
int64_t require_excitation(const ExciteTensors& tensors, const TensorView& input, int64_t channels);

// Tensors that are dense as kernels read them, kept while their addresses are used.
struct DenseExcitation {
  explicit DenseExcitation(const ExciteTensors& tensors);
  Tensor squeeze, excite;
  std::optional<Tensor> squeeze_bias, excite_bias;
  ExciteWeights weights;
};

// The operator convx::squeeze_excite.
Tensor excited(const Tensor& input, const ExciteTensors& tensors, const Text& activation, const Text& gate,
               const Text& algorithm, int64_t tf32);

}  // namespace convx
