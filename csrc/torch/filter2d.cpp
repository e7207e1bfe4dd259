// convx::filter2d: check, allocate, select, launch.
#include "choose/plans.h"
#include "problem/filter_problem.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/run.h"
#include "torch/text.h"

namespace convx {
namespace {

void require_dimensions(const char* name, const char* meaning, const TensorView& tensor) {
  if (tensor.dimensions == 3) return;
  throw InvalidArgument(std::string(name) + " must have 3 dimensions (" + meaning + "), got " +
                        std::to_string(tensor.dimensions) + ": shape " + tensor.shape() +
                        "; convx.functional.filter2d takes other numbers of them");
}

void require_extent(const char* name, const TensorView& tensor, int first_dimension) {
  for (int i = first_dimension; i < 3; ++i) {
    if (tensor.size(i) >= 1) continue;
    throw InvalidArgument(std::string(name) + " must not be empty, got shape " + tensor.shape() +
                          "; only the number of images may be 0");
  }
}

ImageType image_type(const TensorView& images) {
  const std::pair<int32_t, ImageType> codes[] = {{aoti_torch_dtype_float32(), ImageType::float32},
                                                 {aoti_torch_dtype_uint8(), ImageType::uint8},
                                                 {aoti_torch_dtype_float16(), ImageType::float16},
                                                 {aoti_torch_dtype_bfloat16(), ImageType::bfloat16},
                                                 {aoti_torch_dtype_float64(), ImageType::float64}};
  for (const auto& [code, type] : codes) {
    if (code == images.dtype) return type;
  }
  throw InvalidArgument("images must be float32, float64, float16, bfloat16 or uint8, got " +
                        dtype_name(images.dtype) + "; convert them with .to(torch.float32)");
}

void require_filter_type(const TensorView& filters, const TensorView& images, ImageType type) {
  const bool bytes = type == ImageType::uint8;
  const int32_t expected = bytes ? aoti_torch_dtype_float32() : images.dtype;
  if (filters.dtype == expected) return;
  throw InvalidArgument(
      "filter must be " + dtype_name(expected) + " for images of " + dtype_name(images.dtype) + ", got " +
      dtype_name(filters.dtype) +
      (bytes ? "; convert it with .to(torch.float32)" : "; convert one of them with .to()"));
}

// The problem that the arguments describe, checked.
FilterProblem filter_problem(const TensorView& images, const TensorView& filters, const std::string& border) {
  require_dimensions("images", "images, height, width", images);
  require_dimensions("filter", "filters, height, width", filters);
  FilterProblem problem;
  problem.dtype = image_type(images);
  require_filter_type(filters, images, problem.dtype);
  require_same_device("filter", filters, "images", images);
  require_extent("images", images, 1);
  require_extent("filter", filters, 0);
  problem.border = parse_border(border);
  problem.images = images.size(0);
  problem.height = images.size(1);
  problem.width = images.size(2);
  problem.filters = filters.size(0);
  problem.filter_height = filters.size(1);
  problem.filter_width = filters.size(2);
  validate_and_size(problem);
  return problem;
}

Tensor run_filter2d(const Tensor& images, const Tensor& filters, const Text& border, const Text& algorithm) {
  const TensorView image_view(images), filter_view(filters);
  FilterProblem problem = filter_problem(image_view, filter_view, border);
  const DeviceScope scope(image_view.device_index);
  Tensor result =
      allocate({problem.images, problem.filters, problem.height, problem.width}, Layout::nchw, image_view);
  const bool is_empty = problem.images == 0;
  problem.images = std::max<int64_t>(problem.images, 1);  // an algorithm is refused for no images too
  const auto plan = plan_for(problem, device_traits(image_view.device_index), algorithm);
  if (is_empty) return result;
  const Tensor dense_images = dense(images, image_view, Layout::nchw);
  const Tensor dense_filters = dense(filters, filter_view, Layout::nchw);
  Pointers pointers;
  pointers.input = dense_images.const_data_ptr();
  pointers.weight = dense_filters.const_data_ptr();
  pointers.result = result.mutable_data_ptr();
  run(*plan, problem, pointers, image_view);
  return result;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("filter2d", TORCH_BOX(&convx::run_filter2d));
}
