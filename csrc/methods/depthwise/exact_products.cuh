// The products of a weight gradient one by one, for sums that came out as infinity or NaN: kernels let zeros
// stand for pixels and gradients outside of the tensors, and zero times infinity or NaN is NaN where there is
// no product.
#pragma once
#include "platform/gpu/platform.h"

namespace convx::depthwise {

template <class A>
CONVX_DEVICE bool is_finite(A value) {
  return value * A(0) == A(0);
}

// Of one channel of one image.
template <class T>
struct ExactProducts {
  const T* input;
  const T* output_grad;
  int in_height, in_width, out_height, out_width;
  int64_t in_row, out_row;    // from row to row, in elements
  int in_column, out_column;  // from column to column
  int stride_h, stride_w;
  int first_row, first_column;  // the input pixel that a tap joins with output (0, 0), may lie outside

  // Sum over the outputs of a row whose pixel exists: columns begin, begin + step, … before end.
  CONVX_DEVICE Accumulator<T> of_row(int row, int begin, int end, int step) const {
    Accumulator<T> sum = 0;
    const int y = row * stride_h + first_row;
    if (row < 0 || row >= out_height || y < 0 || y >= in_height) return sum;
    CONVX_NO_UNROLL
    for (int column = begin; column < end && column < out_width; column += step) {
      const int x = column * stride_w + first_column;
      if (x < 0 || x >= in_width) continue;
      const T value = load<T, 1>(input + y * in_row + int64_t(x) * in_column).element[0];
      const T grad = load<T, 1>(output_grad + row * out_row + int64_t(column) * out_column).element[0];
      sum = multiply_add(Accumulator<T>(widen(grad)), Accumulator<T>(widen(value)), sum);
    }
    return sum;
  }
};

}  // namespace convx::depthwise
