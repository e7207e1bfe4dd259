#include "problem/filter_problem.h"

#include <array>

namespace convx {
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

bool FilterProblem::operator==(const FilterProblem& other) const {
  return dtype == other.dtype && border == other.border && epilogue == other.epilogue &&
         images == other.images && height == other.height && width == other.width &&
         filters == other.filters && filter_height == other.filter_height &&
         filter_width == other.filter_width && out_height == other.out_height &&
         out_width == other.out_width && stride_h == other.stride_h && stride_w == other.stride_w &&
         dilation_h == other.dilation_h && dilation_w == other.dilation_w &&
         padding_top == other.padding_top && padding_left == other.padding_left;
}

size_t FilterProblem::hash() const {
  const uint64_t kinds =
      static_cast<uint64_t>(dtype) | static_cast<uint64_t>(border) << 8 | epilogue.bits() << 16;
  return hash_of(kinds, {images, height, width, filters, filter_height, filter_width, out_height, out_width,
                         stride_h, stride_w, dilation_h, dilation_w, padding_top, padding_left});
}

void validate_and_size(FilterProblem& p) {
  if (p.images < 0) {
    throw InvalidArgument("images: their number must be at least 0, got " + std::to_string(p.images));
  }
  const struct {
    const char *name, *what;
    int64_t height, width;
  } sizes[] = {{"images", "height and width", p.height, p.width},
               {"filter", "height and width", p.filter_height, p.filter_width}};
  for (const auto& [name, what, height, width] : sizes) {
    if (height >= 1 && width >= 1) continue;
    throw InvalidArgument(std::string(name) + ": " + what + " must be at least 1, got (" +
                          std::to_string(height) + ", " + std::to_string(width) +
                          "); only the number of images may be 0");
  }
  if (p.filters < 1) {
    throw InvalidArgument("filter: a bank must have at least 1, got " + std::to_string(p.filters));
  }
  p.out_height = p.height, p.out_width = p.width;
  p.padding_top = (p.filter_height - 1) / 2, p.padding_left = (p.filter_width - 1) / 2;
  require_countable("images", {p.images, p.height, p.width});
  require_countable("filter", {p.filters, p.filter_height, p.filter_width});
  require_countable("result", {p.images, p.filters, p.height, p.width});
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
  const auto times = [&](int64_t height, int64_t width) { return number(height) + "x" + number(width); };
  const auto pair = [&](int64_t height, int64_t width) {
    return "(" + number(height) + ", " + number(width) + ")";
  };
  std::string text = std::string(kFilterOperation) + " " + to_string(p.dtype) + " " + number(p.images) + "x" +
                     times(p.height, p.width) + " -> " + number(p.filters) + "x" +
                     times(p.out_height, p.out_width) + ", filter " + times(p.filter_height, p.filter_width) +
                     ", border " + to_string(p.border);
  if (p.stride_h != 1 || p.stride_w != 1) text += ", stride " + pair(p.stride_h, p.stride_w);
  if (p.padding_top != (p.filter_height - 1) / 2 || p.padding_left != (p.filter_width - 1) / 2) {
    text += ", padding " + pair(p.padding_top, p.padding_left);
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) text += ", dilation " + pair(p.dilation_h, p.dilation_w);
  return text + describe(p.epilogue);
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

}  // namespace convx
