// Tensors of torch's stable ABI as the operators see them.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "problem/problem.h"

namespace convx {

using torch::stable::Tensor;

// Sizes, strides and type of a tensor, read once: each is a call into libtorch. Borrowed from the tensor.
struct TensorView {
  explicit TensorView(const Tensor& tensor);

  int64_t size(int dimension) const { return sizes[dimension]; }
  bool is_contiguous() const;
  // Dense in a layout; strides of dimensions of size 1 don't matter. Of 4 dimensions.
  bool is_dense(Layout layout) const;
  bool suggests_channels_last() const;  // of 4 dimensions
  std::string shape() const;            // "(1, 3, 8, 8)"

  int64_t dimensions = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int32_t dtype = 0, device_type = 0, device_index = 0;
};

// A new tensor of the type and device of view.
Tensor allocate(const Sizes& sizes, Layout layout, const TensorView& view);
// That many uninitialised bytes on the device of view.
Tensor allocate_bytes(int64_t count, const TensorView& view);

// The layout of a convolution's result by torch's rule: channels_last where one of its operands has strides
// of that order (suggest_memory_format of tensors: where sizes of 1 leave the order open, their strides
// tell). convx/_arguments.py has the same rule.
Layout result_layout(const TensorView& first, const TensorView& second);

// Whether kernels can read it where it is: dense in the layout and aligned for vector loads.
bool is_readable(const Tensor& tensor, const TensorView& view, Layout layout);
// The tensor itself where it is readable, else a copy that is.
Tensor dense(const Tensor& tensor, const TensorView& view, Layout layout);
inline Tensor in_nchw(const Tensor& tensor) {
  return dense(tensor, TensorView(tensor), Layout::nchw);
}
// The bytes of such a copy in torch's own order.
Tensor dense_bytes(const Tensor& tensor, const TensorView& view);
// A copy as allocate would have made it.
Tensor copy(const Tensor& tensor, Layout layout);
// The same memory with other sizes and strides, as a tensor of its own. aten::as_strided would return a view,
// which a program that records gradients could not modify in place as the result of an operator.
Tensor restrided(const Tensor& tensor, const std::vector<int64_t>& sizes,
                 const std::vector<int64_t>& strides);
// A result that nobody else holds, as allocate would have made it: its strides in dimensions of size 1 too.
Tensor canonical(const Tensor& tensor, Layout layout);
// The same of a result of any layout.
Tensor in_layout(const Tensor& result, Layout layout);
// Of operands that may be left out.
std::optional<Tensor> contiguous(const std::optional<Tensor>& tensor);
const void* pointer_of(const std::optional<Tensor>& tensor);

std::string dtype_name(int32_t dtype);                               // "float32"
std::string device_name(int32_t device_type, int32_t device_index);  // "cpu", "cuda:0"

}  // namespace convx
