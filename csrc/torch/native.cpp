#include "torch/native.h"

#include "methods/native/native.h"
#include "torch/backend.h"
#include "torch/dispatch.h"
#include "torch/finish.h"
#include "torch/native_products.h"

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

// aten::convolution_backward for one of its gradients: 0 of the input, 1 of the weight.
Tensor backward(const ConvProblem& problem, const Tensor& output_grad, const Tensor& input,
                const Tensor& weight, size_t wanted) {
  const bool mask[3] = {wanted == 0, wanted == 1, false};
  return call_for<3>("aten::convolution_backward", "", output_grad, input, weight, std::nullopt,
                     list({problem.stride_h, problem.stride_w}), list(torch_padding(problem)),
                     list({problem.dilation_h, problem.dilation_w}), /*transposed=*/false, list({0, 0}),
                     problem.groups, HeaderOnlyArrayRef<bool>(mask, 3))[wanted];
}

Tensor fused_forward(const ConvProblem& p, const Tensor& input, const Tensor& weight,
                     const EpilogueTensors& epilogue) {
  const Pair stride = {p.stride_h, p.stride_w}, padding = torch_padding(p);
  const Pair dilation = {p.dilation_h, p.dilation_w};
  if (!epilogue.residual.has_value()) {
    return call("aten::cudnn_convolution_relu", "", input, weight, epilogue.bias, list(stride), list(padding),
                list(dilation), p.groups);
  }
  constexpr std::nullopt_t kOnce = std::nullopt;  // the residual's factor
  return call("aten::cudnn_convolution_add_relu", "", input, weight, *epilogue.residual, kOnce, epilogue.bias,
              list(stride), list(padding), list(dilation), p.groups);
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
  if (plan.kernel == native::kFused) return fused_forward(problem, input, filters(problem, weight), epilogue);
  ConvProblem left = problem;
  EpilogueTensors rest = epilogue;
  std::optional<Tensor> bias;
  if (native::adds_bias(problem, device_traits(TensorView(input).device_index).backend) &&
      !problem.epilogue.is_more_than_bias()) {
    left.epilogue.has_bias = false;
    bias.swap(rest.bias);
  }
  return finish(left, sums_of(plan, problem, input, weight, bias), rest);
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
