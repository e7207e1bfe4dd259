// One filtering of single-channel images, described without tensors.
#pragma once
#include <cstdint>
#include <string>

#include "problem/problem.h"

namespace convx {

// What is read outside an image, along each axis: zeros; the nearest edge element; the image mirrored
// without repeating its edge (numpy's and torch's "reflect", OpenCV's reflect_101); the image again.
enum class Border : uint8_t { zero, replicate, reflect, wrap };

// Filters and bias have the images' type, but for uint8 images, which have filters and bias in float32 and
// results that are rounded to nearest even and saturated (NaN becomes 0).
enum class ImageType : uint8_t { float32, float64, float16, bfloat16, uint8 };

// result[n][f][y][x] = epilogue(sum over r, s of
//     filters[f][r][s] * images[n][y * stride_h - padding_top + r * dilation_h]
//                              [x * stride_w - padding_left + s * dilation_w])
// for dense images (images, height, width), filters (filters, filter_height, filter_width) and result
// (images, filters, out_height, out_width). A correlation, as torch's convolution is.
struct FilterProblem {
  ImageType dtype = ImageType::float32;
  Border border = Border::zero;
  Epilogue epilogue;  // a convolution's; of uint8 images neither scale nor residual
  int64_t images = 0, height = 0, width = 0;
  int64_t filters = 1, filter_height = 1, filter_width = 1;
  int64_t out_height = 0, out_width = 0;
  int64_t stride_h = 1, stride_w = 1;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t padding_top = 0, padding_left = 0;

  int64_t image_elements() const { return images * height * width; }
  int64_t filter_elements() const { return filters * filter_height * filter_width; }
  int64_t result_elements() const { return images * filters * out_height * out_width; }
  // Fewest bytes that move (images read once, results written once) and multiply-adds counted as two.
  double bytes() const;
  double flops() const;
  FilterProblem as_tuned() const { return *this; }
  bool operator==(const FilterProblem& other) const;
  size_t hash() const;
};

// Its name where a convolution's is forward, input_grad or weight_grad.
constexpr const char* kFilterOperation = "filter2d";

// What convx::filter2d makes of images, filters and their sizes: fills the result's size, which is the
// images', and the padding that this takes; an even filter's extra row or column is at the end. Throws
// InvalidArgument for negative numbers of images, other sizes below 1 and more elements than 64 bits can
// address.
void validate_and_size(FilterProblem& problem);

int64_t image_element_size(ImageType dtype);   // bytes
int64_t filter_element_size(ImageType dtype);  // bytes of an element of filters and bias

// The element that a border has at `index` of an axis of `size` elements; -1 for zero. Indices may lie
// any number of sizes outside.
template <class Int>
constexpr Int border_index(Int index, Int size, Border border) {
  if (index >= 0 && index < size) return index;
  if (border == Border::zero) return -1;
  if (border == Border::replicate) return index < 0 ? 0 : size - 1;
  if (size == 1) return 0;
  const Int period = border == Border::wrap ? size : 2 * (size - 1);
  const Int rest = index % period, place = rest < 0 ? rest + period : rest;
  return place < size ? place : period - place;
}

const char* to_string(Border value);
const char* to_string(ImageType value);
Border parse_border(const std::string& name);  // throw InvalidArgument listing what is supported
ImageType parse_image_type(const std::string& name);
std::string describe(const FilterProblem& problem);  // one line for messages

// The filtering that a convolution is; in_channels is 1, layout nchw, operation forward.
FilterProblem filter_problem(const ConvProblem& problem);

}  // namespace convx
