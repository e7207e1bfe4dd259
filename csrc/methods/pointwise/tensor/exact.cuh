// Sums of the split precision that are not finite. The parts of an infinity, or of a number that rounds to
// one, are not numbers: such sums are made again from the operands as they stand.
#pragma once
#include "methods/pointwise/tensor/kernel.cuh"

namespace convx::pointwise::tensor {

CONVX_DEVICE bool is_finite(float value) {
  return (float_to_bits(value) & 0x7f800000u) != 0x7f800000u;
}

// filters and source as the caller gave them; 0 beyond the last row and where there is no source.
CONVX_DEVICE float exact_sum(const Shape& shape, const float* filters, const float* source, uint32_t group,
                             int row, uint32_t pixel) {
  const int64_t offset = shape.source.offset(pixel);
  if (row >= shape.rows || offset == kNoPixel) return 0;
  const float* const filter =
      filters + static_cast<int64_t>(group) * shape.rows * shape.depth + row * shape.filter_row;
  const float* const from = source + offset + static_cast<int64_t>(group) * shape.depth * shape.source_stride;
  float sum = 0;
  CONVX_NO_UNROLL
  for (int channel = 0; channel < shape.depth; ++channel) {
    sum = multiply_add(filter[channel * shape.filter_depth], from[channel * shape.source_stride], sum);
  }
  return sum;
}

}  // namespace convx::pointwise::tensor
