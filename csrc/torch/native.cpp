#include "torch/native.h"

#include "choose/plans.h"
#include "methods/native/native.h"
#include "torch/backend.h"
#include "torch/dispatch.h"
#include "torch/native_products.h"
#include "torch/run.h"

namespace convx {
namespace {

// Torch's convolution pads both sides alike: other padding is put into the input beforehand.
bool torch_pads(const ConvProblem& problem) {
  return problem.padding_top == problem.padding_bottom && problem.padding_left == problem.padding_right;
}

Pair torch_padding(const ConvProblem& problem) {
  if (!torch_pads(problem)) return {0, 0};
  return {problem.padding_top, problem.padding_left};
}

// The input's sizes with its padding, where torch is to see it so.
Sizes padded_sizes(const ConvProblem& problem) {
  constexpr double kMostBytes = 1 << 26;
  const double bytes =
      static_cast<double>(problem.batch * problem.in_channels * element_size(problem.dtype)) *
      static_cast<double>(problem.padded_height()) * static_cast<double>(problem.padded_width());
  const Support support = supports_padding(problem, DeviceTraits());
  if (bytes > kMostBytes && !support.ok) {
    throw InvalidArgument(
        "padding: torch's convolution, which is left for this, has to be given a padded copy "
        "of the input, nearly all of it padding: " +
        support.reason + " (" + describe(problem) + "); give both sides the same padding, or less of it");
  }
  return {problem.batch, problem.in_channels, problem.padded_height(), problem.padded_width()};
}

Tensor pad(const ConvProblem& problem, const Tensor& input) {
  if (torch_pads(problem)) return input;
  padded_sizes(problem);
  const std::array<int64_t, 4> amounts = {problem.padding_left, problem.padding_right, problem.padding_top,
                                          problem.padding_bottom};
  return torch::stable::pad(input, IntHeaderOnlyArrayRef(amounts.data(), amounts.size()));
}

// The weight as torch takes it without a copy of its own: in the layout of the images where it has that.
Tensor filters(const ConvProblem& problem, const Tensor& weight) {
  const TensorView view(weight);
  return view.is_dense(problem.layout) ? weight : dense(weight, view, Layout::nchw);
}

// An epilogue alone, as a depthwise convolution by ones: one pass over the sums, where torch's operators
// would take one for each of its steps.
Tensor finish_by_ones(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue) {
  ConvProblem p;
  p.dtype = problem.dtype;
  p.layout = problem.layout;
  p.epilogue = problem.epilogue;
  p.epilogue.has_bias = epilogue.bias.has_value();
  p.batch = problem.batch;
  p.in_channels = p.out_channels = p.groups = problem.out_channels;
  p.in_height = problem.out_height;
  p.in_width = problem.out_width;
  validate_and_size(p);
  const TensorView view(sums);
  const Tensor input = dense(sums, view, p.layout);
  const Tensor weight = torch::stable::fill_(allocate({p.in_channels, 1, 1, 1}, Layout::nchw, view), 1.0);
  Tensor result = allocate({p.batch, p.out_channels, p.out_height, p.out_width}, p.layout, view);
  Pointers pointers;
  pointers.input = input.const_data_ptr();
  pointers.weight = weight.const_data_ptr();
  pointers.epilogue = pointers_of(epilogue);
  pointers.result = result.mutable_data_ptr();
  run(*plan_for(p, device_traits(view.device_index), "depthwise"), p, pointers, view);
  return result;
}

Tensor activate(const ConvProblem& problem, const Tensor& sums) {
  switch (problem.epilogue.activation) {
    case Activation::none:
      return sums;
    case Activation::relu:
      return call("aten::relu", "", sums);
    case Activation::relu6:
      return call("aten::relu6", "", sums);
    case Activation::silu:
      return call("aten::silu", "", sums);
    case Activation::hardswish:
      return call("aten::hardswish", "", sums);
    // aten::gelu would take a text, and of those that it is handed through its stable ABI torch (2.11
    // to 2.13) leaves a copy on the heap at every call.
    case Activation::gelu:
      return finish_by_ones(problem, sums, {});
  }
  return sums;
}

// aten::convolution_backward for one of its gradients: 0 of the input, 1 of the weight.
Tensor backward(const ConvProblem& problem, const Tensor& output_grad, const Tensor& input,
                const Tensor& weight, size_t wanted) {
  const bool mask[3] = {wanted == 0, wanted == 1, false};
  return call_for<3>("aten::convolution_backward", "", output_grad, input, weight, std::nullopt,
                     list({problem.stride_h, problem.stride_w}), list(torch_padding(problem)),
                     list({problem.dilation_h, problem.dilation_w}), /*transposed=*/false, list({0, 0}),
                     problem.groups, HeaderOnlyArrayRef<bool>(mask, 3))[wanted];
}

Tensor sums_of(const Plan& plan, const ConvProblem& problem, const Tensor& input, const Tensor& weight,
               const std::optional<Tensor>& bias) {
  if (plan.kernel != native::kConvolution) {
    return product_forward(plan.kernel, problem, input, in_nchw(weight), bias);
  }
  return call("aten::convolution", "", pad(problem, input), filters(problem, weight), bias,
              list({problem.stride_h, problem.stride_w}), list(torch_padding(problem)),
              list({problem.dilation_h, problem.dilation_w}), /*transposed=*/false, list({0, 0}),
              problem.groups);
}

}  // namespace

Tensor native_forward(const Plan& plan, const ConvProblem& problem, const Tensor& input, const Tensor& weight,
                      const EpilogueTensors& epilogue) {
  if (!problem.epilogue.is_more_than_bias()) {
    return activate(problem, sums_of(plan, problem, input, weight, epilogue.bias));
  }
  return finish_by_ones(problem, sums_of(plan, problem, input, weight, std::nullopt), epilogue);
}

Tensor native_input_grad(const Plan& plan, const ConvProblem& problem, const Tensor& output_grad,
                         const Tensor& weight) {
  if (plan.kernel != native::kConvolution) {
    return product_input_grad(plan.kernel, problem, output_grad, in_nchw(weight));
  }
  // The gradient depends on the input's sizes alone; its values are never read.
  const Sizes sizes = torch_pads(problem)
                          ? Sizes{problem.batch, problem.in_channels, problem.in_height, problem.in_width}
                          : padded_sizes(problem);
  const Tensor input = allocate(sizes, problem.layout, TensorView(output_grad));
  Tensor gradient = backward(problem, output_grad, input, filters(problem, weight), 0);
  if (torch_pads(problem)) return gradient;
  Tensor rows = torch::stable::narrow(gradient, 2, problem.padding_top, problem.in_height);
  return copy(torch::stable::narrow(rows, 3, problem.padding_left, problem.in_width), problem.layout);
}

Tensor native_weight_grad(const Plan& plan, const ConvProblem& problem, const Tensor& input,
                          const Tensor& output_grad) {
  if (plan.kernel != native::kConvolution) {
    return product_weight_grad(plan.kernel, problem, input, output_grad);
  }
  const Sizes sizes = {problem.out_channels, problem.in_channels_per_group(), problem.filter_height,
                       problem.filter_width};
  const Tensor weight = allocate(sizes, Layout::nchw, TensorView(input));
  return backward(problem, output_grad, pad(problem, input), weight, 1);
}

}  // namespace convx
