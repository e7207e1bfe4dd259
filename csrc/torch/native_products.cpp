#include "torch/native_products.h"

#include "torch/dispatch.h"

namespace convx {
namespace {

using torch::headeronly::HeaderOnlyArrayRef;

// The same memory with other sizes and strides.
Tensor view_as(const Tensor& tensor, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(tensor.get(), static_cast<int64_t>(sizes.size()),
                                                        sizes.data(), strides.data(), 0, &handle));
  return Tensor(handle);
}

// Rows and columns of a dense matrix in memory, or of its transpose.
Tensor matrix(const Tensor& tensor, int64_t rows, int64_t columns) {
  return view_as(tensor, {rows, columns}, {columns, 1});
}
Tensor transposed(const Tensor& tensor, int64_t rows, int64_t columns) {
  return view_as(tensor, {columns, rows}, {1, columns});
}

// Into a result of convx's own: mm by itself would follow autocast, whose say ends at convx's operators.
void multiply(const Tensor& first, const Tensor& second, const Tensor& result) {
  StableIValue stack[3] = {from(first), from(second), from(result)};
  call("aten::mm", "out", stack);
}

// factor [to][from], or [from][to] where it is to be transposed, times the channels of every image.
Tensor map_channels(const ConvProblem& p, const Tensor& factor, bool transpose, const Tensor& images,
                    int64_t from_channels, int64_t to_channels) {
  const int64_t pixels = p.in_height * p.in_width, rows = p.batch * pixels;
  const Tensor result =
      allocate({p.batch, to_channels, p.in_height, p.in_width}, p.layout, TensorView(images));
  if (p.layout == Layout::nhwc) {
    const Tensor right = transpose ? matrix(factor, from_channels, to_channels)
                                   : transposed(factor, to_channels, from_channels);
    multiply(matrix(images, rows, from_channels), right, matrix(result, rows, to_channels));
    return result;
  }
  const std::vector<int64_t> step =
      transpose ? std::vector<int64_t>{0, 1, to_channels} : std::vector<int64_t>{0, from_channels, 1};
  if (p.batch == 1) {
    multiply(view_as(factor, {to_channels, from_channels}, {step[1], step[2]}),
             matrix(images, from_channels, pixels), matrix(result, to_channels, pixels));
    return result;
  }
  StableIValue stack[3] = {
      from(view_as(factor, {p.batch, to_channels, from_channels}, step)),
      from(view_as(images, {p.batch, from_channels, pixels}, {from_channels * pixels, pixels, 1})),
      from(view_as(result, {p.batch, to_channels, pixels}, {to_channels * pixels, pixels, 1}))};
  call("aten::bmm", "out", stack);
  return result;
}

// aten::_slow_conv2d_backward for one of its gradients: 0 of the input, 1 of the weight.
Tensor im2col_backward(const ConvProblem& p, const Tensor& output_grad, const Tensor& input,
                       const Tensor& weight, size_t wanted) {
  const bool mask[3] = {wanted == 0, wanted == 1, false};
  StableIValue stack[7] = {from(output_grad),
                           from(input),
                           from(weight),
                           list({p.filter_height, p.filter_width}),
                           list({p.stride_h, p.stride_w}),
                           list({p.padding_top, p.padding_left}),
                           from(HeaderOnlyArrayRef<bool>(mask, 3))};
  call("aten::_slow_conv2d_backward", "output_mask", stack);
  const Tensor gradients[3] = {to<Tensor>(stack[0]), to<Tensor>(stack[1]), to<Tensor>(stack[2])};
  return gradients[wanted];
}

}  // namespace

Tensor product_forward(int kernel, const ConvProblem& p, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias) {
  if (kernel == native::kMatmul) {
    return map_channels(p, weight, false, input, p.in_channels, p.out_channels);
  }
  StableIValue stack[6] = {from(in_nchw(input)),
                           from(weight),
                           list({p.filter_height, p.filter_width}),
                           from(bias),
                           list({p.stride_h, p.stride_w}),
                           list({p.padding_top, p.padding_left})};
  call("aten::_slow_conv2d_forward", "", stack);
  return to<Tensor>(stack[0]);
}

Tensor product_input_grad(int kernel, const ConvProblem& p, const Tensor& output_grad, const Tensor& weight) {
  if (kernel == native::kMatmul) {
    return map_channels(p, weight, true, output_grad, p.out_channels, p.in_channels);
  }
  // The gradient depends on the input's sizes alone; its values are never read.
  const Sizes sizes = {p.batch, p.in_channels, p.in_height, p.in_width};
  const Tensor input = allocate(sizes, Layout::nchw, TensorView(output_grad));
  return im2col_backward(p, in_nchw(output_grad), input, weight, 0);
}

Tensor product_weight_grad(int kernel, const ConvProblem& p, const Tensor& input, const Tensor& output_grad) {
  const Sizes sizes = {p.out_channels, p.in_channels, p.filter_height, p.filter_width};
  if (kernel == native::kMatmul) {
    const int64_t pixels = p.batch * p.in_height * p.in_width;
    const bool last = p.layout == Layout::nhwc;
    const Tensor result = allocate(sizes, Layout::nchw, TensorView(input));
    multiply(
        last ? transposed(output_grad, pixels, p.out_channels) : matrix(output_grad, p.out_channels, pixels),
        last ? matrix(input, pixels, p.in_channels) : transposed(input, p.in_channels, pixels),
        matrix(result, p.out_channels, p.in_channels));
    return result;
  }
  const Tensor weight = allocate(sizes, Layout::nchw, TensorView(input));
  return im2col_backward(p, in_nchw(output_grad), in_nchw(input), weight, 1);
}

}  // namespace convx
