// convx::conv2d and pack_weight: check, allocate, select, launch.
#include "choose/plans.h"
#include "choose/registry.h"
#include "methods/native/native.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/native.h"
#include "torch/run.h"
#include "torch/text.h"

namespace convx {
namespace {

// The arguments that conv2d and pack_weight share, checked.
ConvProblem forward_problem(const TensorView& input, const TensorView& weight,
                            const std::optional<Tensor>& bias, const Geometry& geometry,
                            const std::string& activation) {
  require_image("input", input);
  require_image("weight", weight);
  require_like("weight", weight, "input", input);
  ConvProblem problem = describe_problem(Operation::forward, input.dtype, result_layout(input, weight),
                                         sizes_of(input), sizes_of(weight), geometry);
  problem.activation = parse_activation(activation);
  problem.has_bias = bias.has_value();
  if (bias.has_value()) {
    const TensorView view(*bias);
    require_like("bias", view, "input", input);
    require_bias(view, problem);
  }
  return problem;
}

Tensor conv2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
              const std::vector<int64_t>& dilation, int64_t groups, const Text& activation,
              const Text& algorithm, int64_t tf32, const std::optional<Tensor>& packed_weight) {
  const TensorView input_view(input), weight_view(weight);
  ConvProblem problem =
      forward_problem(input_view, weight_view, bias, {stride, padding, dilation, groups, tf32}, activation);
  problem.packs_each_call = !packed_weight.has_value();
  const Sizes sizes = {problem.batch, problem.out_channels, problem.out_height, problem.out_width};
  const Layout layout = result_layout(input_view, weight_view);
  if (problem.batch == 0) {
    check_algorithm(algorithm);
    return allocate(sizes, layout, input_view);
  }
  const DeviceScope scope(input_view.device_index);
  const auto plan = plan_for(problem, device_traits(input_view.device_index), algorithm);
  const Tensor dense_input = dense(input, input_view, problem.layout);
  std::optional<Tensor> dense_bias;
  if (bias.has_value()) {
    dense_bias = TensorView(*bias).is_contiguous() ? *bias : torch::stable::contiguous(*bias);
  }
  if (plan->method == &native::method) {
    return canonical(native_forward(*plan, problem, dense_input, weight, dense_bias), layout);
  }

  const Tensor dense_weight = dense(weight, weight_view, Layout::nchw);
  Tensor output = allocate(sizes, layout, input_view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  pointers.weight = dense_weight.const_data_ptr();
  pointers.bias = bias.has_value() ? dense_bias->const_data_ptr() : nullptr;
  pointers.result = output.mutable_data_ptr();
  if (packed_weight.has_value() && !plan->packing.empty()) {
    require_packed(TensorView(*packed_weight), *plan, input_view);
    pointers.packed_weight = packed_weight->const_data_ptr();
  }
  run(*plan, problem, pointers, input_view);
  return output;
}

// What conv2d takes as packed_weight with the same arguments; empty where its plan reads torch's own order.
Tensor pack_conv2d_weight(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                          const std::vector<int64_t>& dilation, int64_t groups, const Text& activation,
                          const Text& algorithm, int64_t tf32) {
  const TensorView input_view(input), weight_view(weight);
  const ConvProblem problem =
      forward_problem(input_view, weight_view, bias, {stride, padding, dilation, groups, tf32}, activation);
  if (problem.batch == 0) {
    check_algorithm(algorithm);
    return allocate_bytes(0, input_view);
  }
  const DeviceScope scope(input_view.device_index);
  const auto plan = plan_for(problem, device_traits(input_view.device_index), algorithm);
  const Tensor dense_weight = dense(weight, weight_view, Layout::nchw);
  Tensor packed = pack(*plan, problem, dense_weight.const_data_ptr(), input_view);
  if (!plan->packing.empty()) complete_packing(input_view.device_index);
  return packed;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("conv2d", TORCH_BOX(&convx::conv2d));
  library.impl("pack_weight", TORCH_BOX(&convx::pack_conv2d_weight));
}
