// What the depthwise kernels share beside rows and epilogue: which source a tap meets along an axis.
#pragma once
#include "methods/depthwise/cpu/job.h"
#include "methods/epilogue_cpu.h"
#include "platform/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

using depthwise::Algorithm;
using depthwise::ColumnPlan;
using depthwise::Job;
using depthwise::PackedRun;
using depthwise::PackedTap;
using depthwise::TargetColumns;

// Weight gradient: rows summed apart before they join the total, since one accumulator's rounding error grows
// with its length (Higham, "The accuracy of floating point summation", 1993); some 64 products of each lane
// make the second level's cost vanish.
CONVX_INLINE int64_t rows_summed_apart(int64_t products_per_row, int64_t products = 64) {
  return maximum(1, products / products_per_row);
}

constexpr int64_t kBandBytes = 24576;  // of packed source rows: most of a first-level cache

// Source position that tap meets at target, or -1.
struct AxisRule {
  int64_t pad, stride, dilation, source_size;
  bool transposed;
  CONVX_INLINE int64_t source(int64_t target, int64_t tap) const {
    int64_t position = transposed ? target + pad - tap * dilation : target * stride - pad + tap * dilation;
    if (transposed) {
      if (position < 0 || position % stride != 0) return -1;
      position /= stride;
    }
    return position >= 0 && position < source_size ? position : -1;
  }
  // Of the source positions that a target meets with so many taps, those in the image lie from here …
  CONVX_INLINE int64_t first_source(int64_t target, int64_t taps) const {
    const int64_t first = transposed ? target + pad - (taps - 1) * dilation : target * stride - pad;
    return first <= 0 ? 0 : transposed ? (first - 1) / stride + 1 : first;
  }
  // … to here.
  CONVX_INLINE int64_t last_source(int64_t target, int64_t taps) const {
    const int64_t last = transposed ? target + pad : target * stride - pad + (taps - 1) * dilation;
    return minimum(transposed ? last / stride : last, source_size - 1);
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
