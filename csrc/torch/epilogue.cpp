#include "torch/epilogue.h"

#include "torch/arguments.h"
#include "torch/backend.h"

namespace convx {
void set_epilogue(ConvProblem& problem, const EpilogueTensors& tensors, const TensorView& input,
                  Activation activation, bool residual_after_activation) {
  require_per_channel("bias", tensors.bias, input, problem.out_channels);
  require_per_channel("scale", tensors.scale, input, problem.out_channels);
  if (tensors.residual.has_value()) {
    const TensorView view(*tensors.residual);
    require_image("residual", view);
    require_like("residual", view, "input", input);
    require_output_shape("residual", view, problem);
  }
  const bool has_residual = tensors.residual.has_value();
  problem.epilogue = {tensors.bias.has_value(), tensors.scale.has_value(), has_residual,
                      residual_after_activation, activation};
  normalize(problem.epilogue);
}

EpilogueTensors dense_epilogue(const EpilogueTensors& tensors, Layout layout) {
  EpilogueTensors result{contiguous(tensors.bias), contiguous(tensors.scale), {}};
  if (tensors.residual.has_value()) {
    result.residual = dense(*tensors.residual, TensorView(*tensors.residual), layout);
  }
  return result;
}

EpiloguePointers pointers_of(const EpilogueTensors& tensors) {
  return {pointer_of(tensors.bias), pointer_of(tensors.scale), pointer_of(tensors.residual)};
}

}  // namespace convx
