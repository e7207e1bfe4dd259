// What a deep kernel is told of its product.
#pragma once
#include "methods/deep/geometry.h"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/platform.h"

namespace convx::deep {

// Of a kernel with taps: the depth is all channels of the first tap, then all of the next.
struct Window {
  int height, width;  // of the source
  int top, left, stride_h, stride_w, step_h, step_w;
  int taps;
  FastDivide pieces;  // of a tap's channels
  FastDivide filter_width, result_width;
};

struct Shape {
  int filters, channels, step_pairs, warp_pairs;
  uint32_t pixels;
  FastDivide plane;  // pixels of an image of the result, where there are planes or taps
  FastDivide ranks, pairs;
  int exchange_at;
  Window window;

  // Where a pixel's first channel is in a tensor of planes.
  CONVX_DEVICE int64_t in_planes(uint32_t pixel, int channels) const {
    const uint32_t image = plane.quotient(pixel), size = plane.divisor;
    return static_cast<int64_t>(image) * channels * size + (pixel - image * size);
  }
};

// The source of one result pixel: where its first tap is, in the source or beside it.
struct Field {
  int row, column;
  int place;  // elements from the source's begin

  Field() = default;
  CONVX_DEVICE Field(const Shape& shape, uint32_t pixel, bool planes) {
    const Window& window = shape.window;
    const uint32_t image = shape.plane.quotient(pixel), of_image = pixel - image * shape.plane.divisor;
    const uint32_t result_row = window.result_width.quotient(of_image);
    row = static_cast<int>(result_row) * window.stride_h - window.top;
    column =
        static_cast<int>(of_image - result_row * window.result_width.divisor) * window.stride_w - window.left;
    const int before = static_cast<int>(image) * window.height * window.width;
    const int within = row * window.width + column;
    place = planes ? before * shape.channels + within : (before + within) * shape.channels;
  }
};

// A tap by its offset from the first.
struct Tap {
  int row, column;

  Tap() = default;
  CONVX_DEVICE Tap(const Window& window, uint32_t tap) {
    const uint32_t of_rows = window.filter_width.quotient(tap);
    row = static_cast<int>(of_rows) * window.step_h;
    column = static_cast<int>(tap - of_rows * window.filter_width.divisor) * window.step_w;
  }
  CONVX_DEVICE void advance(const Window& window) {
    column += window.step_w;
    if (column < static_cast<int>(window.filter_width.divisor) * window.step_w) return;
    column = 0, row += window.step_h;
  }
  // Elements from the first tap to this one, of pixels that lie that far apart.
  CONVX_DEVICE int shift(const Window& window, int pixel) const {
    return (row * window.width + column) * pixel;
  }
  CONVX_DEVICE bool is_inside(const Window& window, const Field& field) const {
    return static_cast<uint32_t>(field.row + row) < static_cast<uint32_t>(window.height) &&
           static_cast<uint32_t>(field.column + column) < static_cast<uint32_t>(window.width);
  }
};

}  // namespace convx::deep
