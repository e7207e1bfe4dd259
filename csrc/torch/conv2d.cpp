// convx::conv2d and pack_weight: check, allocate, select, launch.
#include "torch/conv2d.h"

#include "choose/plans.h"
#include "choose/registry.h"
#include "methods/native/native.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/epilogue.h"
#include "torch/finish.h"
#include "torch/native.h"
#include "torch/run.h"
#include "torch/text.h"

namespace convx {
namespace {

// The arguments that conv2d and pack_weight share, checked.
ConvProblem forward_problem(const TensorView& input, const TensorView& weight,
                            const EpilogueTensors& epilogue, const Geometry& geometry,
                            const std::string& activation, bool residual_after_activation) {
  require_image("input", input);
  require_image("weight", weight);
  require_like("weight", weight, "input", input);
  ConvProblem problem = describe_problem(Operation::forward, input.dtype, result_layout(input, weight),
                                         sizes_of(input), sizes_of(weight), geometry);
  set_epilogue(problem, epilogue, input, parse_activation(activation), residual_after_activation);
  return problem;
}

// Of a kernel that reads torch's own order.
bool reads_copy(const Tensor& weight, const TensorView& view) {
  return !is_readable(weight, view, Layout::nchw);
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
              const std::vector<int64_t>& dilation, int64_t groups, const Text& activation,
              const Text& algorithm, int64_t tf32, const std::optional<Tensor>& packed_weight,
              const std::optional<Tensor>& residual, const std::optional<Tensor>& scale,
              bool residual_after_activation) {
  const TensorView input_view(input), weight_view(weight);
  const EpilogueTensors given{bias, scale, residual};
  ConvProblem problem =
      forward_problem(input_view, weight_view, given, {stride, padding, dilation, groups, tf32}, activation,
                      residual_after_activation);
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
  const EpilogueTensors epilogue = dense_epilogue(given, problem.layout);
  if (plan->method == &native::method) {
    return canonical(native_forward(*plan, problem, dense_input, weight, epilogue), layout);
  }

  Tensor output = allocate(sizes, layout, input_view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  if (!plan->finishes_apart) pointers.epilogue = pointers_of(epilogue);
  pointers.result = output.mutable_data_ptr();
  const bool packs = !plan->packing.empty();
  const bool has_kept = packed_weight.has_value() && (packs || reads_copy(weight, weight_view));
  if (has_kept && packs) {
    require_packed(TensorView(*packed_weight), *plan, input_view);
    pointers.packed_weight = packed_weight->const_data_ptr();
  } else if (has_kept) {
    const int64_t bytes = problem.weight_elements() * element_size(problem.dtype);
    require_packed(TensorView(*packed_weight), bytes, "the weight in torch's order", input_view);
    pointers.weight = packed_weight->const_data_ptr();
  }
  std::optional<Tensor> dense_weight;
  if (!has_kept || plan->reads_both) {
    dense_weight = dense(weight, weight_view, Layout::nchw);
    pointers.weight = dense_weight->const_data_ptr();
  }
  ConvProblem kernels = problem;
  if (plan->finishes_apart) kernels.epilogue = {};
  run(*plan, kernels, pointers, input_view);
  return plan->finishes_apart ? canonical(finish(problem, output, epilogue), layout) : output;
}

namespace {

// What conv2d takes as packed_weight with the same arguments: filters in the order of its plan's kernel, also
// in torch's own where the weight is not; empty where the kernel reads the weight itself.
Tensor pack_conv2d_weight(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                          const std::vector<int64_t>& dilation, int64_t groups, const Text& activation,
                          const Text& algorithm, int64_t tf32, const std::optional<Tensor>& residual,
                          const std::optional<Tensor>& scale, bool residual_after_activation) {
  const TensorView input_view(input), weight_view(weight);
  const ConvProblem problem =
      forward_problem(input_view, weight_view, {bias, scale, residual},
                      {stride, padding, dilation, groups, tf32}, activation, residual_after_activation);
  if (problem.batch == 0) {
    check_algorithm(algorithm);
    return allocate_bytes(0, input_view);
  }
  const DeviceScope scope(input_view.device_index);
  const auto plan = plan_for(problem, device_traits(input_view.device_index), algorithm);
  if (plan->packing.empty()) {
    const bool is_copied = plan->method != &native::method && reads_copy(weight, weight_view);
    return is_copied ? dense_bytes(weight, weight_view) : allocate_bytes(0, input_view);
  }
  const Tensor dense_weight = dense(weight, weight_view, Layout::nchw);
  Tensor packed = pack(*plan, problem, dense_weight.const_data_ptr(), input_view);
  complete_packing(input_view.device_index);
  return packed;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("conv2d", TORCH_BOX(&convx::conv2d));
  library.impl("pack_weight", TORCH_BOX(&convx::pack_conv2d_weight));
}
