// Pooling of planes, described without tensors.
#pragma once
#include <algorithm>
#include <cstdint>

#include "problem/problem.h"

namespace convx {

enum class Pooling : uint8_t { max, average };

// Results along one dimension, and the values that each is made of: those of `filter` places, dilation apart,
// that the input has. The places of result i begin at i * stride - padding.
struct PoolingWindow {
  int64_t extent, results, filter, stride, padding, dilation;

  int64_t first(int64_t result) const { return result * stride - padding; }
  // Taps that meet the input: [begin, end).
  int64_t begin(int64_t result) const {
    const int64_t place = first(result);
    return place >= 0 ? 0 : std::min((dilation - 1 - place) / dilation, filter);
  }
  int64_t end(int64_t result) const {
    const int64_t left = extent - first(result);
    return std::max(std::min(left <= 0 ? 0 : (left + dilation - 1) / dilation, filter), begin(result));
  }
  // Values of the padding, too, that an average counts: the last window may reach beyond it.
  int64_t padded(int64_t result) const {
    return std::min(first(result) + filter, extent + padding) - first(result);
  }
};

// Of a dense float32 tensor of (batch, channels, height, width) in the layout, and a result in the same one.
struct PoolingProblem {
  Pooling kind = Pooling::max;
  Layout layout = Layout::nchw;
  int64_t batch = 0, channels = 0;
  PoolingWindow down, across;
  // Of averages: whether they are of the padding too, and what sums are divided by (0: by the values' count).
  bool counts_padding = true;
  int64_t divisor = 0;

  int64_t divisor_of(int64_t row, int64_t column) const {
    if (divisor != 0) return divisor;
    if (counts_padding) return down.padded(row) * across.padded(column);
    return (down.end(row) - down.begin(row)) * (across.end(column) - across.begin(column));
  }
};

}  // namespace convx
