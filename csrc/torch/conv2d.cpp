// convx::conv2d: check, allocate, select, launch.
#include "methods/native/native.h"
#include "select/registry.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/native.h"
#include "torch/run.h"

namespace convx {
namespace {

Tensor conv2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
              const std::vector<int64_t>& dilation, int64_t groups, const std::string& activation,
              const std::string& algorithm) {
  const TensorView input_view(input), weight_view(weight);
  require_image("input", input_view);
  require_image("weight", weight_view);
  require_like("weight", weight_view, "input", input_view);
  const Layout layout = layout_of(input_view);
  ConvProblem problem = describe_problem(Operation::forward, input_view.dtype, layout, sizes_of(input_view),
                                         sizes_of(weight_view), {stride, padding, dilation, groups});
  problem.activation = parse_activation(activation);
  problem.has_bias = bias.has_value();
  std::optional<Tensor> dense_bias;
  if (bias.has_value()) {
    const TensorView bias_view(*bias);
    require_like("bias", bias_view, "input", input_view);
    require_bias(bias_view, problem);
    dense_bias = bias_view.is_contiguous() ? *bias : torch::stable::contiguous(*bias);
  }

  const Sizes sizes = {problem.batch, problem.out_channels, problem.out_height, problem.out_width};
  if (problem.batch == 0) {
    check_algorithm(algorithm);
    return allocate(sizes, layout, input_view);
  }
  const DeviceScope scope(input_view.device_index);
  const auto plan = plan_for(problem, device_traits(input_view.device_index), algorithm);
  const Tensor dense_input = dense(input, input_view, layout);
  if (plan->method == &native::method) return native_forward(problem, dense_input, weight, dense_bias);

  const Tensor dense_weight = dense(weight, weight_view, Layout::nchw);
  Tensor output = allocate(sizes, layout, input_view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  pointers.weight = dense_weight.const_data_ptr();
  pointers.bias = bias.has_value() ? dense_bias->const_data_ptr() : nullptr;
  pointers.result = output.mutable_data_ptr();
  run(*plan, problem, pointers, input_view);
  return output;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("conv2d", TORCH_BOX(&convx::conv2d));
}
