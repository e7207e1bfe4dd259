// Sums of float32 that its two parts of TF32 can't be the operands of (fragments.cuh): products as they
// stand.
#pragma once
#include "methods/inverted_residual/fragments.cuh"

namespace convx::inverted_residual {

CONVX_DEVICE bool is_finite(const PairSums& sums) {
  float all = 0;
  CONVX_UNROLL
  for (int i = 0; i < 8; ++i) all += sums.tile[i / 4][i % 4];
  return fabsf(all) < INFINITY;
}

// Adds products of the lane's two rows, 8 * row_pitch bytes apart, with a pair's filters, of which steps of
// the depth are filters_pitch bytes apart.
CONVX_DEVICE void add_exactly(PairSums& sums, const unsigned char* lanes_row, int row_pitch,
                              const unsigned char* filters, int filters_pitch, int steps, int lane) {
  const float* const row = reinterpret_cast<const float*>(lanes_row);
  // Of the first of the lane's channels; of its second one they are 16 further, of the others 2 more.
  const float* const of_channels = reinterpret_cast<const float*>(filters) + lane % 4 * 32;
  CONVX_NO_UNROLL
  for (int k = 0; k < steps * 8; ++k) {
    const float* const filter = of_channels + k / 8 * (filters_pitch / 4) + k % 4 * 4 + k % 8 / 4;
    CONVX_UNROLL
    for (int channel = 0; channel < 4; ++channel) {
      const float own = filter[channel % 2 * 16 + channel / 2 * 2];
      sums.at(0, channel) = multiply_add(row[k], own, sums.at(0, channel));
      sums.at(1, channel) = multiply_add(row[2 * row_pitch + k], own, sums.at(1, channel));
    }
  }
}

}  // namespace convx::inverted_residual
