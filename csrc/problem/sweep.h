// What kernels compute of a convolution: filters swept over a source, which gives a result.
//
// A forward call sweeps over its input. An input gradient is a sweep over the output gradient, both channel
// axes of the filters exchanged: at stride 1 the forward sweep of the flipped filters, else a transposed one.
// Where a weight gradient needs a sweep, it is the forward call's.
#pragma once
#include <cstdint>
#include <utility>

#include "problem/problem.h"

namespace convx {

// Sizes in elements; channels are those of one group.
struct Sweep {
  int64_t batch, groups, source_channels, result_channels;
  int64_t source_height, source_width, result_height, result_width;
  int64_t filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  // Rows and columns of zeros before the source, below zero where it is cropped. Result o meets source
  // o * stride + tap * dilation - top; of a transposed sweep it is the source o' that meets result
  // o' * stride + tap * dilation - top.
  int64_t top, left;
  bool flipped;     // taps are taken from the last to the first
  bool transposed;  // an input gradient with a stride

  bool exchanges_channels() const { return flipped || transposed; }
  int64_t taps() const { return filter_height * filter_width; }
  int64_t source_plane() const { return source_height * source_width; }
  int64_t result_plane() const { return result_height * result_width; }
  int64_t all_source_channels() const { return groups * source_channels; }
  int64_t all_result_channels() const { return groups * result_channels; }
  int64_t results() const { return batch * all_result_channels() * result_plane(); }
  // Every result pixel reads the one source pixel of its own index: a plane may as well be one row.
  bool is_flat() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && top == 0 && left == 0 &&
           source_height == result_height && source_width == result_width;
  }
};

inline Sweep sweep_of(const ConvProblem& p) {
  Sweep s{};
  s.batch = p.batch, s.groups = p.groups;
  s.source_channels = p.in_channels_per_group(), s.result_channels = p.out_channels_per_group();
  s.source_height = p.in_height, s.source_width = p.in_width;
  s.result_height = p.out_height, s.result_width = p.out_width;
  s.filter_height = p.filter_height, s.filter_width = p.filter_width;
  s.stride_h = p.stride_h, s.stride_w = p.stride_w;
  s.dilation_h = p.dilation_h, s.dilation_w = p.dilation_w;
  s.top = p.padding_top, s.left = p.padding_left;
  if (p.operation != Operation::input_grad) return s;
  std::swap(s.source_channels, s.result_channels);
  std::swap(s.source_height, s.result_height);
  std::swap(s.source_width, s.result_width);
  s.flipped = p.stride_h == 1 && p.stride_w == 1;
  s.transposed = !s.flipped;
  if (s.flipped) {
    s.top = (p.filter_height - 1) * p.dilation_h - p.padding_top;
    s.left = (p.filter_width - 1) * p.dilation_w - p.padding_left;
  }
  return s;
}

}  // namespace convx
