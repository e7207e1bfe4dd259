// convx::filter2d: check, allocate, plan, launch.
#include "methods/filter2d/filter2d.h"

#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/tensor.h"
#include "torch/text.h"

namespace convx {
namespace {

using filter2d::FilterProblem;
using filter2d::ImageType;

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

Tensor run_filter2d(const Tensor& images, const Tensor& filters, const Text& border, const Text& algorithm) {
  const TensorView image_view(images), filter_view(filters);
  require_dimensions("images", "images, height, width", image_view);
  require_dimensions("filter", "filters, height, width", filter_view);
  FilterProblem problem;
  problem.dtype = image_type(image_view);
  require_filter_type(filter_view, image_view, problem.dtype);
  require_same_device("filter", filter_view, "images", image_view);
  require_extent("images", image_view, 1);
  require_extent("filter", filter_view, 0);
  problem.border = filter2d::parse_border(border);
  problem.images = image_view.size(0);
  problem.height = problem.out_height = image_view.size(1);
  problem.width = problem.out_width = image_view.size(2);
  problem.filters = filter_view.size(0);
  problem.filter_height = filter_view.size(1);
  problem.filter_width = filter_view.size(2);
  // As padding="same" has it: an even filter's extra row or column is at the end.
  problem.padding_top = (problem.filter_height - 1) / 2;
  problem.padding_left = (problem.filter_width - 1) / 2;

  const DeviceScope scope(image_view.device_index);
  Tensor result =
      allocate({problem.images, problem.filters, problem.height, problem.width}, Layout::nchw, image_view);
  // The algorithm's name is checked for no images too, as if there were one.
  FilterProblem planned = problem;
  planned.images = std::max<int64_t>(problem.images, 1);
  const Plan plan = filter2d::plan_filter(planned, device_traits(image_view.device_index), algorithm);
  if (problem.images == 0) return result;
  const Tensor dense_images = dense(images, image_view, Layout::nchw);
  const Tensor dense_filters = dense(filters, filter_view, Layout::nchw);
  filter2d::FilterPointers pointers;
  pointers.images = dense_images.const_data_ptr();
  pointers.filters = dense_filters.const_data_ptr();
  pointers.result = result.mutable_data_ptr();
  launch_filter(plan, problem, pointers, image_view.device_index);
  return result;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("filter2d", TORCH_BOX(&convx::run_filter2d));
}
