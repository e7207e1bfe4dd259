// The tensors of a forward epilogue: checked, made dense, handed to kernels.
#pragma once
#include <optional>

#include "plan/launch.h"
#include "torch/tensor.h"

namespace convx {

struct EpilogueTensors {
  std::optional<Tensor> bias, scale, residual;
};

// Fills the problem's epilogue. bias and scale have to have a value per output channel, the residual the
// output's shape, all the input's dtype and device. Throws InvalidArgument.
void set_epilogue(ConvProblem& problem, const EpilogueTensors& tensors, const TensorView& input,
                  Activation activation, bool residual_after_activation);

// As kernels read them; the residual in a layout, and where vectors may begin.
EpilogueTensors dense_epilogue(const EpilogueTensors& tensors, Layout layout);
EpiloguePointers pointers_of(const EpilogueTensors& tensors);

}  // namespace convx
