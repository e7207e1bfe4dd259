// From the pixels that a product counts, over the whole batch, to where they lie in a tensor.
#pragma once
#include "platform/gpu/platform.h"
#include "problem/problem.h"

namespace convx::pointwise {

constexpr int64_t kNoPixel = -1;

// The pixels of the tensor that is counted itself.
struct OwnPixels {
  uint32_t pixels = 0;  // of the batch
  FastDivide plane;
  int64_t image_stride = 0, pixel_stride = 0;  // elements

  // Offset of a pixel's first channel; kNoPixel beyond the last pixel.
  CONVX_DEVICE int64_t offset(uint32_t pixel) const {
    if (pixel >= pixels) return kNoPixel;
    const uint32_t image = plane.quotient(pixel);
    return image * image_stride + (pixel - image * plane.divisor) * pixel_stride;
  }
};

// Pixels of another tensor: gathered, the input pixel that an output pixel reads; spread, the output pixel
// that an input pixel was read by, in the input gradient.
struct OtherPixels {
  enum Kind : int { same, gathered, spread };
  OwnPixels counted;  // with the other tensor's strides
  int kind = same;
  FastDivide width;  // of the images that are counted
  FastDivide stride_h, stride_w;
  int padding_top = 0, padding_left = 0, other_height = 0, other_width = 0;

  // As OwnPixels; kNoPixel for padding, and where no output was made from an input pixel.
  CONVX_DEVICE int64_t offset(uint32_t pixel) const {
    if (kind == same) return counted.offset(pixel);
    if (pixel >= counted.pixels) return kNoPixel;
    const uint32_t image = counted.plane.quotient(pixel), rest = pixel - image * counted.plane.divisor;
    const int row = static_cast<int>(width.quotient(rest));
    const int column = static_cast<int>(rest) - row * static_cast<int>(width.divisor);
    int y, x;
    if (kind == gathered) {
      y = row * static_cast<int>(stride_h.divisor) - padding_top;
      x = column * static_cast<int>(stride_w.divisor) - padding_left;
    } else {
      const uint32_t below = row + padding_top, right = column + padding_left;
      y = static_cast<int>(stride_h.quotient(below));
      x = static_cast<int>(stride_w.quotient(right));
      if (y * stride_h.divisor != below || x * stride_w.divisor != right) return kNoPixel;
    }
    if (y < 0 || y >= other_height || x < 0 || x >= other_width) return kNoPixel;
    return image * counted.image_stride + static_cast<int64_t>(y * other_width + x) * counted.pixel_stride;
  }
};

inline OwnPixels own_pixels(const ConvProblem& problem, bool of_input) {
  const int64_t height = of_input ? problem.in_height : problem.out_height;
  const int64_t width = of_input ? problem.in_width : problem.out_width;
  const int64_t channels = of_input ? problem.in_channels : problem.out_channels;
  OwnPixels map;
  map.pixels = static_cast<uint32_t>(problem.batch * height * width);
  map.plane = FastDivide(static_cast<uint32_t>(height * width));
  map.image_stride = channels * height * width;
  map.pixel_stride = problem.layout == Layout::nhwc ? channels : 1;
  return map;
}

// From the pixels of the output to those of the input, or the other way.
inline OtherPixels other_pixels(const ConvProblem& problem, bool to_input, bool same_pixels) {
  const OwnPixels there = own_pixels(problem, to_input);
  OtherPixels map;
  map.counted = own_pixels(problem, !to_input);
  map.counted.image_stride = there.image_stride;
  map.counted.pixel_stride = there.pixel_stride;
  map.kind = same_pixels ? OtherPixels::same : to_input ? OtherPixels::gathered : OtherPixels::spread;
  map.width = FastDivide(static_cast<uint32_t>(to_input ? problem.out_width : problem.in_width));
  map.stride_h = FastDivide(static_cast<uint32_t>(problem.stride_h));
  map.stride_w = FastDivide(static_cast<uint32_t>(problem.stride_w));
  map.padding_top = static_cast<int>(problem.padding_top);
  map.padding_left = static_cast<int>(problem.padding_left);
  map.other_height = static_cast<int>(to_input ? problem.in_height : problem.out_height);
  map.other_width = static_cast<int>(to_input ? problem.in_width : problem.out_width);
  return map;
}

// Between the channels of a pixel.
inline int64_t channel_stride(const ConvProblem& problem, bool of_input) {
  if (problem.layout == Layout::nhwc) return 1;
  return of_input ? problem.in_height * problem.in_width : problem.out_height * problem.out_width;
}

}  // namespace convx::pointwise
