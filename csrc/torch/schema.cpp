// The operators' schemas, defined once, by the CPU library. tf32: what torch's settings let round float32 to
// TF32, 1 convolutions, 2 matrix products, 3 both. It has no default, which would be left out of what
// torch.compile records, and so of the key under which Inductor keeps compiled code on disk: code that was
// compiled for another schema would be taken for this one's.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(convx, library) {
  library.def(
      "conv2d(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
      "int groups, str activation, str algorithm, int tf32, Tensor? packed_weight=None, Tensor? "
      "residual=None, "
      "Tensor? scale=None, bool residual_after_activation=False) -> Tensor");
  library.def(
      "pack_weight(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
      "int groups, str activation, str algorithm, int tf32, Tensor? residual=None, Tensor? scale=None, "
      "bool residual_after_activation=False) -> Tensor");
  library.def(
      "conv2d_input_grad(Tensor output_grad, Tensor weight, SymInt[] input_size, int[] stride, int[] "
      "padding, "
      "int[] dilation, int groups, str algorithm, int tf32) -> Tensor");
  library.def(
      "conv2d_weight_grad(Tensor input, Tensor output_grad, SymInt[] weight_size, int[] stride, "
      "int[] padding, int[] dilation, int groups, str algorithm, int tf32) -> Tensor");
  library.def(
      "inverted_residual(Tensor input, Tensor expand_weight, Tensor? expand_bias, Tensor depthwise_weight, "
      "Tensor? depthwise_bias, Tensor project_weight, Tensor? project_bias, Tensor? squeeze_weight, "
      "Tensor? squeeze_bias, Tensor? excite_weight, Tensor? excite_bias, int expand_stride, int stride, "
      "str activation, str squeeze_activation, str gate, str output_activation, bool residual, "
      "str algorithm, int tf32, Tensor? packed_weight=None) -> Tensor");
  library.def(
      "pack_inverted_residual(Tensor input, Tensor expand_weight, Tensor? expand_bias, Tensor "
      "depthwise_weight, Tensor? depthwise_bias, Tensor project_weight, Tensor? project_bias, "
      "Tensor? squeeze_weight, Tensor? squeeze_bias, Tensor? excite_weight, Tensor? excite_bias, "
      "int expand_stride, int stride, str activation, str squeeze_activation, str gate, "
      "str output_activation, bool residual, str algorithm) -> Tensor");
  library.def(
      "squeeze_excite(Tensor input, Tensor squeeze_weight, Tensor? squeeze_bias, Tensor excite_weight, "
      "Tensor? excite_bias, str activation, str gate, str algorithm, int tf32) -> Tensor");
  library.def("filter2d(Tensor images, Tensor filters, str border, str algorithm) -> Tensor");
}
