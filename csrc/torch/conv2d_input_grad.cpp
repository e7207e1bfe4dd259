// convx::conv2d_input_grad: check, allocate, select, launch.
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

Tensor conv2d_input_grad(const Tensor& output_grad, const Tensor& weight,
                         const std::vector<int64_t>& input_size, const std::vector<int64_t>& stride,
                         const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation,
                         int64_t groups, const Text& algorithm, int64_t tf32) {
  const TensorView grad_view(output_grad), weight_view(weight);
  require_image("output_grad", grad_view);
  require_image("weight", weight_view);
  require_like("weight", weight_view, "output_grad", grad_view);
  const Layout layout = result_layout(grad_view, weight_view);
  const Sizes sizes = sizes_argument("input_size", input_size);
  const ConvProblem problem =
      describe_problem(Operation::input_grad, grad_view.dtype, layout, sizes, sizes_of(weight_view),
                       {stride, padding, dilation, groups, tf32});
  require_output_shape("output_grad", grad_view, problem);
  if (problem.batch == 0) {
    check_algorithm(algorithm);
    return allocate(sizes, layout, grad_view);
  }
  const DeviceScope scope(grad_view.device_index);
  const auto plan = plan_for(problem, device_traits(grad_view.device_index), algorithm);
  const Tensor dense_grad = dense(output_grad, grad_view, problem.layout);
  if (plan->method == &native::method) {
    return canonical(native_input_grad(*plan, problem, dense_grad, weight), layout);
  }

  const Tensor dense_weight = dense(weight, weight_view, Layout::nchw);
  Tensor input_grad = allocate(sizes, layout, grad_view);
  Pointers pointers;
  pointers.output_grad = dense_grad.const_data_ptr();
  pointers.weight = dense_weight.const_data_ptr();
  pointers.result = input_grad.mutable_data_ptr();
  run(*plan, problem, pointers, grad_view);
  return input_grad;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("conv2d_input_grad", TORCH_BOX(&convx::conv2d_input_grad));
}
