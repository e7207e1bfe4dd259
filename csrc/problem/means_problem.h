// Means of planes, described without tensors.
#pragma once
#include <cstdint>

#include "problem/problem.h"

namespace convx {

// Of a dense tensor of (batch, channels, height, width) in the layout: (batch, channels).
struct MeansProblem {
  DType dtype = DType::float32;
  Layout layout = Layout::nchw;
  int64_t batch = 0, channels = 0, pixels = 0;  // of a plane

  int64_t elements() const { return batch * channels * pixels; }
};

}  // namespace convx
