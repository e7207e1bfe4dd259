#include "torch/native.h"

#include "methods/native/native.h"
#include "torch/dispatch.h"
#include "torch/native_products.h"

namespace convx {
namespace {

using torch::headeronly::HeaderOnlyArrayRef;
using torch::headeronly::IntHeaderOnlyArrayRef;

// Torch's convolution pads both sides alike: what one side has more is put into the input beforehand.
bool is_symmetric(const ConvProblem& problem) {
  return problem.padding_top == problem.padding_bottom && problem.padding_left == problem.padding_right;
}

Pair symmetric_padding(const ConvProblem& problem) {
  if (!is_symmetric(problem)) return {0, 0};
  return {problem.padding_top, problem.padding_left};
}

Tensor pad(const ConvProblem& problem, const Tensor& input) {
  if (is_symmetric(problem)) return input;
  const std::array<int64_t, 4> amounts = {problem.padding_left, problem.padding_right, problem.padding_top,
                                          problem.padding_bottom};
  return torch::stable::pad(input, IntHeaderOnlyArrayRef(amounts.data(), amounts.size()));
}

// The weight as torch takes it without a copy of its own: in the layout of the images where it has that.
Tensor filters(const ConvProblem& problem, const Tensor& weight) {
  const TensorView view(weight);
  return view.is_dense(problem.layout) ? weight : dense(weight, view, Layout::nchw);
}

Tensor activate(Activation activation, Tensor tensor) {
  if (activation == Activation::none) return tensor;
  StableIValue stack[2] = {from(tensor), 0};
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      call("aten::relu", "", stack);
      break;
    case Activation::relu6:
      call("aten::relu6", "", stack);
      break;
    case Activation::silu:
      call("aten::silu", "", stack);
      break;
    case Activation::hardswish:
      call("aten::hardswish", "", stack);
      break;
    case Activation::gelu:
      stack[1] = from(std::string("none"));
      call("aten::gelu", "", stack);
      break;
  }
  return to<Tensor>(stack[0]);
}

// aten::convolution_backward for one of its gradients: 0 of the input, 1 of the weight.
Tensor backward(const ConvProblem& problem, const Tensor& output_grad, const Tensor& input,
                const Tensor& weight, size_t wanted) {
  const bool mask[3] = {wanted == 0, wanted == 1, false};
  const bool transposed = false;
  StableIValue stack[11] = {from(output_grad),
                            from(input),
                            from(weight),
                            from(std::nullopt),
                            list({problem.stride_h, problem.stride_w}),
                            list(symmetric_padding(problem)),
                            list({problem.dilation_h, problem.dilation_w}),
                            from(transposed),
                            list({0, 0}),
                            from(problem.groups),
                            from(HeaderOnlyArrayRef<bool>(mask, 3))};
  call("aten::convolution_backward", "", stack);
  const Tensor gradients[3] = {to<Tensor>(stack[0]), to<Tensor>(stack[1]), to<Tensor>(stack[2])};
  return gradients[wanted];
}

}  // namespace

Tensor native_forward(const Plan& plan, const ConvProblem& problem, const Tensor& input, const Tensor& weight,
                      const std::optional<Tensor>& bias) {
  if (plan.kernel != native::kConvolution) {
    const Tensor sums = product_forward(plan.kernel, problem, input, in_nchw(weight), bias);
    return canonical(activate(problem.activation, sums), problem.layout);
  }
  const bool transposed = false;
  StableIValue stack[9] = {from(pad(problem, input)),
                           from(filters(problem, weight)),
                           from(bias),
                           list({problem.stride_h, problem.stride_w}),
                           list(symmetric_padding(problem)),
                           list({problem.dilation_h, problem.dilation_w}),
                           from(transposed),
                           list({0, 0}),
                           from(problem.groups)};
  call("aten::convolution", "", stack);
  return canonical(activate(problem.activation, to<Tensor>(stack[0])), problem.layout);
}

Tensor native_input_grad(const Plan& plan, const ConvProblem& problem, const Tensor& output_grad,
                         const Tensor& weight) {
  if (plan.kernel != native::kConvolution) {
    return canonical(product_input_grad(plan.kernel, problem, output_grad, in_nchw(weight)), problem.layout);
  }
  // The gradient depends on the input's sizes alone; its values are never read.
  Sizes sizes = {problem.batch, problem.in_channels, problem.in_height, problem.in_width};
  if (!is_symmetric(problem)) {
    sizes[2] += problem.padding_top + problem.padding_bottom;
    sizes[3] += problem.padding_left + problem.padding_right;
  }
  const Tensor input = allocate(sizes, problem.layout, TensorView(output_grad));
  Tensor gradient = backward(problem, output_grad, input, filters(problem, weight), 0);
  if (!is_symmetric(problem)) {
    gradient = torch::stable::narrow(gradient, 2, problem.padding_top, problem.in_height);
    gradient = torch::stable::narrow(gradient, 3, problem.padding_left, problem.in_width);
  }
  return canonical(gradient, problem.layout);
}

Tensor native_weight_grad(const Plan& plan, const ConvProblem& problem, const Tensor& input,
                          const Tensor& output_grad) {
  if (plan.kernel != native::kConvolution) {
    return canonical(product_weight_grad(plan.kernel, problem, input, output_grad), Layout::nchw);
  }
  const Sizes sizes = {problem.out_channels, problem.in_channels_per_group(), problem.filter_height,
                       problem.filter_width};
  const Tensor weight = allocate(sizes, Layout::nchw, TensorView(input));
  return canonical(backward(problem, output_grad, pad(problem, input), weight, 1), Layout::nchw);
}

}  // namespace convx
