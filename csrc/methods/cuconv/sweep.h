// What the kernels compute: filters swept over a source. Forward, or the input gradient at stride 1, which is
// the forward sweep of the flipped filters, both channel axes exchanged, over the output gradient.
#pragma once
#include "problem/problem.h"

namespace convx::cuconv {

// Sizes in elements; channels and filters are those of one group. top and left count rows and columns of
// zeros, below zero where the source is cropped.
struct Sweep {
  int64_t batch, groups, channels, filters;
  int64_t source_height, source_width, result_height, result_width;
  int64_t filter_height, filter_width, stride_h, stride_w, dilation_h, dilation_w;
  int64_t top, left;

  int64_t taps() const { return filter_height * filter_width; }
  int64_t source_plane() const { return source_height * source_width; }
  int64_t result_plane() const { return result_height * result_width; }
  int64_t results() const { return batch * groups * filters * result_plane(); }
  // Every result pixel reads the one source pixel of its own index: a plane is one row.
  bool is_flat() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && top == 0 && left == 0 &&
           source_height == result_height && source_width == result_width;
  }
};

inline Sweep sweep_of(const ConvProblem& p) {
  Sweep s{};
  s.batch = p.batch;
  s.groups = p.groups;
  s.filter_height = p.filter_height;
  s.filter_width = p.filter_width;
  s.stride_h = p.stride_h;
  s.stride_w = p.stride_w;
  s.dilation_h = p.dilation_h;
  s.dilation_w = p.dilation_w;
  const bool forward = p.operation == Operation::forward;
  s.channels = forward ? p.in_channels_per_group() : p.out_channels_per_group();
  s.filters = forward ? p.out_channels_per_group() : p.in_channels_per_group();
  s.source_height = forward ? p.in_height : p.out_height;
  s.source_width = forward ? p.in_width : p.out_width;
  s.result_height = forward ? p.out_height : p.in_height;
  s.result_width = forward ? p.out_width : p.in_width;
  s.top = forward ? p.padding_top : (p.filter_height - 1) * p.dilation_h - p.padding_top;
  s.left = forward ? p.padding_left : (p.filter_width - 1) * p.dilation_w - p.padding_left;
  return s;
}

constexpr int64_t divide_up(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}
constexpr int64_t round_up(int64_t value, int64_t by) {
  return divide_up(value, by) * by;
}

}  // namespace convx::cuconv
