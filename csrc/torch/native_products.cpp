#include "torch/native_products.h"

#include "torch/dispatch.h"

namespace convx {
namespace {

// Rows and columns of a dense matrix in memory, or of its transpose.
Tensor matrix(const Tensor& tensor, int64_t rows, int64_t columns) {
  return restrided(tensor, {rows, columns}, {columns, 1});
}
Tensor transposed(const Tensor& tensor, int64_t rows, int64_t columns) {
  return restrided(tensor, {columns, rows}, {1, columns});
}

// Into a result of convx's own: mm by itself would follow autocast, whose say ends at convx's operators.
void multiply(const Tensor& first, const Tensor& second, const Tensor& result) {
  call("aten::mm", "out", first, second, result);
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
    multiply(restrided(factor, {to_channels, from_channels}, {step[1], step[2]}),
             matrix(images, from_channels, pixels), matrix(result, to_channels, pixels));
    return result;
  }
  call("aten::bmm", "out", restrided(factor, {p.batch, to_channels, from_channels}, step),
       restrided(images, {p.batch, from_channels, pixels}, {from_channels * pixels, pixels, 1}),
       restrided(result, {p.batch, to_channels, pixels}, {to_channels * pixels, pixels, 1}));
  return result;
}

// aten::_slow_conv2d_backward for one of its gradients: 0 of the input, 1 of the weight.
Tensor im2col_backward(const ConvProblem& p, const Tensor& output_grad, const Tensor& input,
                       const Tensor& weight, size_t wanted) {
  const bool mask[3] = {wanted == 0, wanted == 1, false};
  return call_for<3>("aten::_slow_conv2d_backward", "output_mask", output_grad, input, weight,
                     list({p.filter_height, p.filter_width}), list({p.stride_h, p.stride_w}),
                     list({p.padding_top, p.padding_left}), HeaderOnlyArrayRef<bool>(mask, 3))[wanted];
}

}  // namespace

Tensor product_forward(int kernel, const ConvProblem& p, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias) {
  if (kernel == native::kMatmul) {
    return map_channels(p, weight, false, input, p.in_channels, p.out_channels);
  }
  return call("aten::_slow_conv2d_forward", "", in_nchw(input), weight,
              list({p.filter_height, p.filter_width}), bias, list({p.stride_h, p.stride_w}),
              list({p.padding_top, p.padding_left}));
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
