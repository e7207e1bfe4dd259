// One spatial axis of a depthwise problem as unit-stride correlations (see correlate.cuh).
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "problem/problem.h"

namespace convx::depthwise::direct {

struct AxisGeometry {
  int64_t in_size, out_size, filter, stride, dilation, padding;
  int64_t spacing, period;

  // Results of one residue: every result of the forward, every stride-th of the input gradient.
  int64_t lattice(bool gradient) const { return gradient ? (in_size + stride - 1) / stride : out_size; }
  // Residues of the input gradient that have results.
  int64_t residues() const { return std::min(stride, in_size); }
  int64_t phases() const { return std::min(period, filter); }
  int64_t taps_of_phase() const { return (filter + period - 1) / period; }
};

inline AxisGeometry make_axis(int64_t in_size, int64_t out_size, int64_t filter, int64_t stride,
                              int64_t dilation, int64_t padding) {
  const int64_t common = std::gcd(stride, dilation);
  return {in_size, out_size, filter, stride, dilation, padding, dilation / common, stride / common};
}
inline AxisGeometry row_axis(const ConvProblem& problem) {
  return make_axis(problem.in_height, problem.out_height, problem.filter_height, problem.stride_h,
                   problem.dilation_h, problem.padding_top);
}
inline AxisGeometry column_axis(const ConvProblem& problem) {
  return make_axis(problem.in_width, problem.out_width, problem.filter_width, problem.stride_w,
                   problem.dilation_w, problem.padding_left);
}

// Tiles of `size` results, spacing apart, that cover a lattice.
inline int64_t tiles_of(int64_t lattice, int64_t spacing, int64_t size) {
  const int64_t groups = lattice / (spacing * size);
  return groups * spacing + std::min(spacing, lattice - groups * spacing * size);
}

}  // namespace convx::depthwise::direct
