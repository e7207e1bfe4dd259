// The pixels of input and output that meet in a 1x1 filter, and what the vectors of a CPU hold of a product.
#pragma once
#include <algorithm>
#include <cstdint>

#include "methods/pointwise/product.h"
#include "problem/device.h"
#include "problem/problem.h"

namespace convx::pointwise {

// Where rows and columns of a grid lie in an image of `plane` pixels.
struct Side {
  int64_t first, row_step, column_step, plane;
  int64_t pixel(int64_t row, int64_t column) const { return first + row * row_step + column * column_step; }
};

// Pixel (row, column) of the result is made from that of the source. The result's other pixels, where padding
// or a gradient's stride leaves some, have no products.
struct Grid {
  int64_t height, width;
  Side source, result;
  int64_t pixels() const { return height * width; }
  // Whether its pixels are neighbours, row after row, from the image's first on.
  bool is_flat(const Side& side) const {
    return side.first == 0 && side.column_step == 1 && (height == 1 || side.row_step == width);
  }
};

namespace detail {

// Of one axis: outputs whose input is not padding, and the input of the first.
struct Axis {
  int64_t first_output, count, first_input;
};

inline Axis axis_of(int64_t in, int64_t out, int64_t stride, int64_t padding) {
  const int64_t first = divide_up(padding, stride);
  const int64_t end = std::min(out, divide_up(in + padding, stride));
  return {first, std::max<int64_t>(end - first, 0), first * stride - padding};
}

}  // namespace detail

// channels_last: the images of a batch follow one another as rows do, and are one where no pixel is left out.
inline Grid grid_of(const ConvProblem& p) {
  if (product_of(p).same_pixels) {
    const int64_t pixels = (p.layout == Layout::nhwc ? p.batch : 1) * p.in_height * p.in_width;
    const Side side{0, pixels, 1, pixels};
    return {1, pixels, side, side};
  }
  const detail::Axis down = detail::axis_of(p.in_height, p.out_height, p.stride_h, p.padding_top);
  const detail::Axis across = detail::axis_of(p.in_width, p.out_width, p.stride_w, p.padding_left);
  const Side input{down.first_input * p.in_width + across.first_input, p.stride_h * p.in_width, p.stride_w,
                   p.in_height * p.in_width};
  const Side output{down.first_output * p.out_width + across.first_output, p.out_width, 1,
                    p.out_height * p.out_width};
  const bool forward_sweep = p.operation != Operation::input_grad;
  return {down.count, across.count, forward_sweep ? input : output, forward_sweep ? output : input};
}

// Images that the grid is of.
inline int64_t grid_images(const ConvProblem& p) {
  return product_of(p).same_pixels && p.layout == Layout::nhwc ? 1 : p.batch;
}

// Vectors that an instruction set has names for.
constexpr int vector_registers(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? 32 : 16;
}

constexpr int kMostVectors = 4;  // of a row of a register tile

// Beside the sums of a register tile: a row's vectors, one value for all lanes, and its products where these
// are not added in the same instruction.
constexpr int operand_registers(CpuIsa isa, int vectors) {
  return vectors + (isa == CpuIsa::baseline ? 2 : 1);
}
// The most rows of a register tile that many vectors wide; every smaller one is compiled too.
constexpr int most_rows(CpuIsa isa, int vectors) {
  return (vector_registers(isa) - operand_registers(isa, vectors)) / vectors;
}
// Products that are summed apart before they join a result's total, for the sake of rounding; without fused
// multiply-adds each product is rounded too.
constexpr int most_products_apart(CpuIsa isa) {
  return isa == CpuIsa::baseline ? 48 : 128;
}

}  // namespace convx::pointwise
