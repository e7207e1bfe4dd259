#include "torch/tensor.h"

#include <torch/headeronly/core/ScalarType.h>

#include <cctype>

#include "torch/backend.h"
#include "torch/dispatch.h"

namespace convx {
namespace {

// Strides of a dense tensor. Sizes of 0 count as 1 in the plain layout alone, as torch has it.
Sizes dense_strides(const Sizes& sizes, Layout layout) {
  const auto [batch, channels, height, width] = sizes;
  (void)batch;
  if (layout == Layout::nhwc) return {height * width * channels, 1, width * channels, channels};
  const int64_t row = std::max<int64_t>(width, 1), plane = std::max<int64_t>(height, 1) * row;
  return {std::max<int64_t>(channels, 1) * plane, plane, row, 1};
}

}  // namespace

TensorView::TensorView(const Tensor& tensor) {
  AtenTensorHandle handle = tensor.get();
  int64_t* text = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(handle, &dimensions));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle, &text));
  sizes = text;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle, &text));
  strides = text;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(handle, &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(handle, &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(handle, &device_index));
}

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  bool contiguous = true;
  for (int64_t i = dimensions - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) contiguous = false;
    expected *= sizes[i];
  }
  return contiguous;
}

bool TensorView::is_dense(Layout layout) const {
  if (layout == Layout::nchw) return is_contiguous();
  const Sizes expected = dense_strides({sizes[0], sizes[1], sizes[2], sizes[3]}, layout);
  for (int i = 0; i < 4; ++i) {
    if (sizes[i] != 1 && strides[i] != expected[i]) return false;
  }
  return true;
}

bool TensorView::suggests_channels_last() const {
  if (strides[1] == 0) return false;
  int64_t least = 0;
  for (const int dimension : {1, 3, 2, 0}) {
    if (sizes[dimension] == 0 || strides[dimension] < least) return false;
    // Images of one pixel and one channel, and slices of a column: as likely the plain order.
    if (dimension == 0 && least == strides[1]) return false;
    least = strides[dimension] * std::max<int64_t>(sizes[dimension], 1);
  }
  return true;
}

std::string TensorView::shape() const {
  std::string text = "(";
  for (int64_t i = 0; i < dimensions; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + (dimensions == 1 ? ",)" : ")");
}

Tensor allocate(const Sizes& sizes, Layout layout, const TensorView& view) {
  const Sizes strides = dense_strides(sizes, layout);
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(4, sizes.data(), strides.data(), view.dtype,
                                                  view.device_type, view.device_index, &handle));
  return Tensor(handle);
}

Tensor allocate_bytes(int64_t count, const TensorView& view) {
  const int64_t stride = 1;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &count, &stride, aoti_torch_dtype_uint8(),
                                                  view.device_type, view.device_index, &handle));
  return Tensor(handle);
}

Layout result_layout(const TensorView& first, const TensorView& second) {
  const bool last = first.suggests_channels_last() || second.suggests_channels_last();
  return last ? Layout::nhwc : Layout::nchw;
}

bool is_readable(const Tensor& tensor, const TensorView& view, Layout layout) {
  // A slice may begin anywhere.
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return view.is_dense(layout) && address % kArgumentAlignment == 0;
}

Tensor dense(const Tensor& tensor, const TensorView& view, Layout layout) {
  if (is_readable(tensor, view, layout)) return tensor;
  // A copy begins where the allocator does.
  if (view.is_dense(layout)) return torch::stable::clone(tensor);
  return torch::stable::contiguous(tensor, memory_format(layout));
}

Tensor dense_bytes(const Tensor& tensor, const TensorView& view) {
  const Sizes sizes = {view.sizes[0], view.sizes[1], view.sizes[2], view.sizes[3]};
  const Sizes strides = dense_strides(sizes, Layout::nchw);
  const int64_t elements = sizes[0] * sizes[1] * sizes[2] * sizes[3];
  Tensor bytes = allocate_bytes(elements * static_cast<int64_t>(tensor.element_size()), view);
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(bytes.mutable_data_ptr(), 4, sizes.data(),
                                                            strides.data(), 0, view.dtype, view.device_type,
                                                            view.device_index, &handle));
  Tensor values(handle);
  torch::stable::copy_(values, tensor);
  return bytes;
}

Tensor copy(const Tensor& tensor, Layout layout) {
  return call("aten::clone", "", tensor, std::optional<MemoryFormat>(memory_format(layout)));
}

Tensor restrided(const Tensor& tensor, const std::vector<int64_t>& sizes,
                 const std::vector<int64_t>& strides) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(tensor.get(), static_cast<int64_t>(sizes.size()),
                                                        sizes.data(), strides.data(), 0, &handle));
  return Tensor(handle);
}

Tensor canonical(const Tensor& tensor, Layout layout) {
  const TensorView view(tensor);
  if (!view.is_dense(layout)) return copy(tensor, layout);
  const Sizes sizes = {view.sizes[0], view.sizes[1], view.sizes[2], view.sizes[3]};
  const Sizes strides = dense_strides(sizes, layout);
  if (std::equal(strides.begin(), strides.end(), view.strides)) return tensor;
  return restrided(tensor, {sizes.begin(), sizes.end()}, {strides.begin(), strides.end()});
}

Tensor in_layout(const Tensor& result, Layout layout) {
  return TensorView(result).is_dense(layout) ? canonical(result, layout) : copy(result, layout);
}

std::optional<Tensor> contiguous(const std::optional<Tensor>& tensor) {
  if (!tensor.has_value() || TensorView(*tensor).is_contiguous()) return tensor;
  return torch::stable::contiguous(*tensor);
}

const void* pointer_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? tensor->const_data_ptr() : nullptr;
}

// Every type that the headers know, most of them refused: their numbers are part of torch's file format, and
// the stable ABI has functions for few of them.
std::string dtype_name(int32_t dtype) {
  using torch::headeronly::ScalarType;
  const std::pair<ScalarType, const char*> names[] = {
      {ScalarType::Byte, "uint8"},
      {ScalarType::Char, "int8"},
      {ScalarType::Short, "int16"},
      {ScalarType::Int, "int32"},
      {ScalarType::Long, "int64"},
      {ScalarType::Half, "float16"},
      {ScalarType::Float, "float32"},
      {ScalarType::Double, "float64"},
      {ScalarType::ComplexHalf, "complex32"},
      {ScalarType::ComplexFloat, "complex64"},
      {ScalarType::ComplexDouble, "complex128"},
      {ScalarType::Bool, "bool"},
      {ScalarType::BFloat16, "bfloat16"},
  };
  for (const auto& [code, name] : names) {
    if (static_cast<int32_t>(code) == dtype) return name;
  }
  if (dtype < 0 || dtype >= static_cast<int32_t>(ScalarType::Undefined)) {
    return "torch dtype number " + std::to_string(dtype);
  }
  // The others are called in Python what they are called here, in lower case.
  std::string name = torch::headeronly::toString(static_cast<ScalarType>(dtype));
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

std::string device_name(int32_t device_type, int32_t device_index) {
  if (device_type == aoti_torch_device_type_cpu()) return "cpu";
  const bool cuda = device_type == aoti_torch_device_type_cuda();
  return (cuda ? "cuda:" : "device type " + std::to_string(device_type) + ":") + std::to_string(device_index);
}

}  // namespace convx
