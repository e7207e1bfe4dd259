#include <array>

#include "methods/filter2d/problem.h"

namespace convx::filter2d {
namespace {

constexpr std::array<const char*, 4> kBorders = {"zero", "replicate", "reflect", "wrap"};
constexpr std::array<const char*, 5> kTypes = {"float32", "float64", "float16", "bfloat16", "uint8"};

template <class Enum, size_t Count>
Enum parse(const char* argument, const std::string& name, const std::array<const char*, Count>& names) {
  std::string supported;
  for (size_t i = 0; i < Count; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    supported += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  throw InvalidArgument(std::string(argument) + " must be one of " + supported + "; got '" + name + "'");
}

ImageType image_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return ImageType::float32;
    case DType::float64:
      return ImageType::float64;
    case DType::float16:
      return ImageType::float16;
    case DType::bfloat16:
      return ImageType::bfloat16;
  }
  return ImageType::float32;
}

}  // namespace

double FilterProblem::bytes() const {
  const double elements = static_cast<double>(image_elements()) + static_cast<double>(result_elements());
  return elements * static_cast<double>(image_element_size(dtype)) +
         static_cast<double>(filter_elements() * filter_element_size(dtype));
}

double FilterProblem::flops() const {
  return 2.0 * static_cast<double>(result_elements()) * static_cast<double>(filter_height * filter_width);
}

int64_t image_element_size(ImageType dtype) {
  switch (dtype) {
    case ImageType::float32:
      return 4;
    case ImageType::float64:
      return 8;
    case ImageType::float16:
    case ImageType::bfloat16:
      return 2;
    case ImageType::uint8:
      return 1;
  }
  return 4;
}

int64_t filter_element_size(ImageType dtype) {
  return dtype == ImageType::uint8 ? 4 : image_element_size(dtype);
}

const char* to_string(Border value) {
  return kBorders[static_cast<size_t>(value)];
}

const char* to_string(ImageType value) {
  return kTypes[static_cast<size_t>(value)];
}

Border parse_border(const std::string& name) {
  return parse<Border>("border", name, kBorders);
}

ImageType parse_image_type(const std::string& name) {
  return parse<ImageType>("images", name, kTypes);
}

std::string describe(const FilterProblem& p) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  const auto pair = [&](int64_t height, int64_t width) { return number(height) + "x" + number(width); };
  return "filter2d of " + std::string(to_string(p.dtype)) + ": " + number(p.images) + " images of " +
         pair(p.height, p.width) + ", " + number(p.filters) + " filters of " +
         pair(p.filter_height, p.filter_width) + ", result " + pair(p.out_height, p.out_width) + ", stride " +
         pair(p.stride_h, p.stride_w) + ", dilation " + pair(p.dilation_h, p.dilation_w) + ", padding " +
         pair(p.padding_top, p.padding_left) + ", border " + to_string(p.border);
}

FilterProblem filter_problem(const ConvProblem& p) {
  FilterProblem filter;
  filter.dtype = image_type(p.dtype);
  filter.epilogue = p.epilogue;
  filter.images = p.batch, filter.height = p.in_height, filter.width = p.in_width;
  filter.filters = p.out_channels;
  filter.filter_height = p.filter_height, filter.filter_width = p.filter_width;
  filter.out_height = p.out_height, filter.out_width = p.out_width;
  filter.stride_h = p.stride_h, filter.stride_w = p.stride_w;
  filter.dilation_h = p.dilation_h, filter.dilation_w = p.dilation_w;
  filter.padding_top = p.padding_top, filter.padding_left = p.padding_left;
  return filter;
}

}  // namespace convx::filter2d
