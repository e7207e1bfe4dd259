// convx::squeeze_excite: check, allocate, select, launch.
#include "torch/squeeze_excite.h"

#include "choose/plans.h"
#include "methods/squeeze_excite/squeeze_excite.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/conv2d.h"
#include "torch/dispatch.h"
#include "torch/run.h"

namespace convx {
namespace {

// The problem that the arguments describe, checked.
ExciteProblem excite_problem(const TensorView& input, const ExciteTensors& tensors,
                             const std::string& activation, const std::string& gate) {
  ExciteProblem problem;
  problem.dtype = require_image("input", input);
  problem.layout = input.suggests_channels_last() ? Layout::nhwc : Layout::nchw;
  problem.activation = parse_activation(activation);
  problem.gate = parse_gate(gate);
  problem.batch = input.size(0), problem.channels = input.size(1);
  problem.height = input.size(2), problem.width = input.size(3);
  problem.squeezed_channels = require_excitation(tensors, input, problem.channels);
  validate(problem);
  return problem;
}

Tensor by_steps(const ExciteProblem& p, const Tensor& input, const ExciteTensors& tensors,
                const Text& activation, int64_t tf32) {
  const std::vector<int64_t> one = {1, 1}, none = {0, 0, 0, 0};
  const Text algorithm("auto"), linear("none");
  const Pair pixel = {1, 1};
  const Tensor mean = call("aten::adaptive_avg_pool2d", "", input, list(pixel));
  const Tensor squeezed = conv2d(mean, tensors.squeeze, tensors.squeeze_bias, one, none, one, 1, activation,
                                 algorithm, tf32, {}, {}, {}, false);
  const Tensor gates = conv2d(squeezed, tensors.excite, tensors.excite_bias, one, none, one, 1, linear,
                              algorithm, tf32, {}, {}, {}, false);
  const bool is_hard = p.gate == Gate::hardsigmoid;
  return call("aten::mul", "Tensor", input, call(is_hard ? "aten::hardsigmoid" : "aten::sigmoid", "", gates));
}

Tensor run_excite(const Tensor& input, const Tensor& squeeze_weight,
                  const std::optional<Tensor>& squeeze_bias, const Tensor& excite_weight,
                  const std::optional<Tensor>& excite_bias, const Text& activation, const Text& gate,
                  const Text& algorithm, int64_t tf32) {
  return excited(input, {squeeze_weight, squeeze_bias, excite_weight, excite_bias}, activation, gate,
                 algorithm, tf32);
}

}  // namespace

int64_t require_excitation(const ExciteTensors& tensors, const TensorView& input, int64_t channels) {
  const TensorView squeeze(tensors.squeeze), excite(tensors.excite);
  const std::pair<const char*, const TensorView&> weights[] = {{"squeeze_weight", squeeze},
                                                               {"excite_weight", excite}};
  for (const auto& [name, weight] : weights) {
    require_image(name, weight);
    require_like(name, weight, "input", input);
  }
  const int64_t squeezed = squeeze.size(0);
  require_least("squeezed_channels", squeezed, 1);
  require_size("squeeze_weight", squeeze, {squeezed, channels, 1, 1});
  require_size("excite_weight", excite, {channels, squeezed, 1, 1});
  require_per_channel("squeeze_bias", tensors.squeeze_bias, input, squeezed);
  require_per_channel("excite_bias", tensors.excite_bias, input, channels);
  return squeezed;
}

DenseExcitation::DenseExcitation(const ExciteTensors& tensors)
    : squeeze(in_nchw(tensors.squeeze)),
      excite(in_nchw(tensors.excite)),
      squeeze_bias(contiguous(tensors.squeeze_bias)),
      excite_bias(contiguous(tensors.excite_bias)),
      weights{squeeze.const_data_ptr(), pointer_of(squeeze_bias), excite.const_data_ptr(),
              pointer_of(excite_bias)} {}

Tensor excited(const Tensor& input, const ExciteTensors& tensors, const Text& activation, const Text& gate,
               const Text& algorithm, int64_t tf32) {
  const TensorView view(input);
  const ExciteProblem problem = excite_problem(view, tensors, activation, gate);
  const DeviceScope scope(view.device_index);
  const auto plan = plan_for(problem, device_traits(view.device_index), algorithm);
  if (plan->method == &squeeze_excite::native) {
    return in_layout(by_steps(problem, input, tensors, activation, tf32), problem.layout);
  }
  const Tensor dense_input = dense(input, view, problem.layout);
  const DenseExcitation dense_tensors(tensors);
  Tensor result = allocate(sizes_of(view), problem.layout, view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  pointers.weight = &dense_tensors.weights;
  pointers.result = result.mutable_data_ptr();
  run(*plan, problem, pointers, view);
  return result;
}

}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("squeeze_excite", TORCH_BOX(&convx::run_excite));
}
