// convx::conv2d_weight_grad: check, allocate, select, launch.
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

Tensor conv2d_weight_grad(const Tensor& input, const Tensor& output_grad,
                          const std::vector<int64_t>& weight_size, const std::vector<int64_t>& stride,
                          const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation,
                          int64_t groups, const Text& algorithm, int64_t tf32) {
  const TensorView input_view(input), grad_view(output_grad);
  require_image("input", input_view);
  require_image("output_grad", grad_view);
  require_like("output_grad", grad_view, "input", input_view);
  const Layout layout = result_layout(input_view, grad_view);
  const Sizes sizes = sizes_argument("weight_size", weight_size);
  const ConvProblem problem =
      describe_problem(Operation::weight_grad, input_view.dtype, layout, sizes_of(input_view), sizes,
                       {stride, padding, dilation, groups, tf32});
  require_output_shape("output_grad", grad_view, problem);
  const DeviceScope scope(input_view.device_index);
  if (problem.batch == 0) {  // a sum over nothing
    check_algorithm(algorithm);
    Tensor zeros = allocate(sizes, layout, input_view);
    return torch::stable::zero_(zeros);
  }
  const auto plan = plan_for(problem, device_traits(input_view.device_index), algorithm);
  const Tensor dense_input = dense(input, input_view, problem.layout);
  const Tensor dense_grad = dense(output_grad, grad_view, problem.layout);
  if (plan->method == &native::method) {
    return canonical(native_weight_grad(*plan, problem, dense_input, dense_grad), layout);
  }

  Tensor weight_grad = allocate(sizes, Layout::nchw, input_view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  pointers.output_grad = dense_grad.const_data_ptr();
  pointers.result = weight_grad.mutable_data_ptr();
  run(*plan, problem, pointers, input_view);
  return canonical(weight_grad, layout);
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("conv2d_weight_grad", TORCH_BOX(&convx::conv2d_weight_grad));
}
