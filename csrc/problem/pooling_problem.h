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

// How many results torch's function gives of it, whose last window may, in ceil_mode, reach beyond the
// padding; none of what it refuses.
inline int64_t results_of(const PoolingWindow& window, bool ceil_mode) {
  constexpr int64_t kMost = int64_t{1} << 30;  // whose products are in range
  for (const int64_t each : {window.extent, window.filter, window.stride, window.dilation}) {
    if (each < 1 || each > kMost) return 0;
  }
  if (window.padding < 0 || window.padding > window.filter / 2) return 0;
  const int64_t room = window.extent + 2 * window.padding - window.dilation * (window.filter - 1) - 1 +
                       (ceil_mode ? window.stride - 1 : 0);
  const int64_t results = room < 0 ? 0 : room / window.stride + 1;
  // The last one begins in the input or in the padding before it.
  return ceil_mode && window.first(results - 1) >= window.extent ? results - 1 : results;
}

// Of a dense tensor of (batch, channels, height, width) in the layout, and a result in the same one.
struct PoolingProblem {
  Pooling kind = Pooling::max;
  DType dtype = DType::float32;
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
