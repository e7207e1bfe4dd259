#include "torch/arguments.h"

namespace convx {
namespace {

std::string list(const int64_t* values, size_t count) {
  std::string text = "(";
  for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + ")";
}

void require_length(const char* name, const std::vector<int64_t>& values, size_t length,
                    const char* meaning) {
  if (values.size() == length) return;
  throw InvalidArgument(std::string(name) + " must hold " + std::to_string(length) + " integers (" + meaning +
                        "), got " + std::to_string(values.size()) + ": " +
                        list(values.data(), values.size()));
}

bool to_dtype(int32_t code, DType& dtype) {
  static const std::pair<int32_t, DType> kCodes[] = {{aoti_torch_dtype_float32(), DType::float32},
                                                     {aoti_torch_dtype_float64(), DType::float64},
                                                     {aoti_torch_dtype_float16(), DType::float16},
                                                     {aoti_torch_dtype_bfloat16(), DType::bfloat16}};
  for (const auto& [each, value] : kCodes) {
    if (each != code) continue;
    dtype = value;
    return true;
  }
  return false;
}

}  // namespace

DType require_image(const char* name, const TensorView& tensor) {
  if (tensor.dimensions != 4) {
    throw InvalidArgument(std::string(name) + " must have 4 dimensions, got " +
                          std::to_string(tensor.dimensions) + ": shape " + tensor.shape() +
                          "; convx.functional takes unbatched and 1D inputs too");
  }
  DType dtype;
  if (!to_dtype(tensor.dtype, dtype)) {
    throw InvalidArgument(std::string(name) + " must be float32, float64, float16 or bfloat16, got " +
                          dtype_name(tensor.dtype) + "; convert it with .to(torch.float32)");
  }
  return dtype;
}

void require_like(const char* name, const TensorView& tensor, const char* first_name,
                  const TensorView& first) {
  if (tensor.dtype != first.dtype) {
    throw InvalidArgument(std::string(name) + " must have the dtype of " + first_name + " (" +
                          dtype_name(first.dtype) + "), got " + dtype_name(tensor.dtype) +
                          "; convert one of them with .to()");
  }
  require_same_device(name, tensor, first_name, first);
}

void require_same_device(const char* name, const TensorView& tensor, const char* first_name,
                         const TensorView& first) {
  if (tensor.device_type != first.device_type || tensor.device_index != first.device_index) {
    throw InvalidArgument(std::string(name) + " must be on the device of " + first_name + " (" +
                          device_name(first.device_type, first.device_index) + "), got " +
                          device_name(tensor.device_type, tensor.device_index) +
                          "; move one of them with .to()");
  }
}

void require_size(const char* name, const TensorView& tensor, const std::vector<int64_t>& sizes) {
  bool is_same = tensor.dimensions == static_cast<int64_t>(sizes.size());
  std::string wanted;
  for (size_t i = 0; i < sizes.size(); ++i) {
    is_same = is_same && tensor.size(static_cast<int>(i)) == sizes[i];
    wanted += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  }
  if (is_same) return;
  throw InvalidArgument(std::string(name) + " must have the shape (" + wanted +
                        ") for these other tensors, got " + tensor.shape());
}

void require_per_channel(const char* name, const std::optional<Tensor>& tensor, const TensorView& input,
                         int64_t channels) {
  if (!tensor.has_value()) return;
  const TensorView view(*tensor);
  require_like(name, view, "input", input);
  if (view.dimensions == 1 && view.size(0) == channels) return;
  throw InvalidArgument(std::string(name) + " must have shape (" + std::to_string(channels) +
                        ",), one value per output channel, got " + view.shape());
}

Sizes sizes_argument(const char* name, const std::vector<int64_t>& values) {
  require_length(name, values, 4, "one per dimension");
  return {values[0], values[1], values[2], values[3]};
}

Sizes sizes_of(const TensorView& tensor) {
  return {tensor.sizes[0], tensor.sizes[1], tensor.sizes[2], tensor.sizes[3]};
}

ConvProblem describe_problem(Operation operation, int32_t dtype, Layout layout, const Sizes& input,
                             const Sizes& weight, const Geometry& geometry) {
  require_length("stride", geometry.stride, 2, "height, width");
  require_length("padding", geometry.padding, 4, "top, bottom, left, right");
  require_length("dilation", geometry.dilation, 2, "height, width");
  ConvProblem problem;
  problem.operation = operation;
  to_dtype(dtype, problem.dtype);
  problem.layout = layout;
  set_tf32(problem, geometry.tf32);
  set_sizes(problem, input, weight, geometry.stride.data(), geometry.padding.data(), geometry.dilation.data(),
            geometry.groups);
  return problem;
}

void require_output_shape(const char* name, const TensorView& tensor, const ConvProblem& problem) {
  const Sizes expected = {problem.batch, problem.out_channels, problem.out_height, problem.out_width};
  if (sizes_of(tensor) == expected) return;
  throw InvalidArgument(std::string(name) + " must have the shape of the output, " +
                        list(expected.data(), 4) + ", got " + tensor.shape() +
                        "; check the sizes, stride, padding and dilation");
}

void require_packed(const TensorView& packed, int64_t bytes, const std::string& order,
                    const TensorView& input) {
  const bool on_device = packed.device_type == input.device_type && packed.device_index == input.device_index;
  if (on_device && packed.dtype == aoti_torch_dtype_uint8() && packed.dimensions == 1 &&
      packed.sizes[0] == bytes && packed.is_contiguous()) {
    return;
  }
  throw InvalidArgument("packed_weight must hold the " + std::to_string(bytes) + " bytes of " + order +
                        " (uint8, contiguous, on the input's device), got " + dtype_name(packed.dtype) +
                        " of shape " + packed.shape() + " on " +
                        device_name(packed.device_type, packed.device_index) +
                        "; make it with torch.ops.convx.pack_weight and the same arguments");
}

void require_packed(const TensorView& packed, const Plan& plan, const TensorView& input) {
  require_packed(packed, plan.packed_weight_bytes, "packing '" + plan.packing + "'", input);
}

}  // namespace convx
