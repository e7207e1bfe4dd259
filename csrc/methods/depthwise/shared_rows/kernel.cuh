// Row reuse through shared memory, as Liu et al. 2024 print it (section 4.2, Algorithm 1 with its indices
// corrected): a group of threads makes a plane, a thread a result column. Rows of the source come to shared
// memory one after another, each once, the next while one is in use; a row adds to every result row that
// meets it. Those sums are registers, which later rows take over as soon as a result is written.
#pragma once
#include "methods/depthwise/shared_rows/geometry.h"
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::depthwise::shared_rows {

struct Arguments {
  const float* source;
  const float* weight;
  const float* bias;  // null without
  float* result;
  int source_height, source_width, result_height, result_width;
  int top, left;  // padding
  int groups, row_elements;
  FastDivide columns, segments, channels;
  uint32_t units;
  Activation activation;
};

template <int Lanes, int Filter, int Stride>
CONVX_KERNEL(kThreads, (Filter == 7 ? 2 : 4))
shared_rows_kernel(Arguments a) {
  CONVX_SKIP_OTHER_WARPS(Lanes);
  constexpr int kSums = (Filter + Stride - 1) / Stride;  // result rows that one source row meets at most
  constexpr int kShare = Stride + 1;                     // elements of a row that a thread brings at most
  CONVX_DYNAMIC_SHARED(memory);
  const int columns = static_cast<int>(a.columns.divisor);
  const int group = static_cast<int>(a.columns.quotient(threadIdx.x));
  const int place = static_cast<int>(threadIdx.x) - group * columns;
  const uint32_t unit = blockIdx.x * a.groups + group;
  const bool live = group < a.groups && unit < a.units;
  const uint32_t plane = a.segments.quotient(live ? unit : 0);
  const int first = static_cast<int>((live ? unit : 0) - plane * a.segments.divisor) * columns;
  const int column = first + place, channel = static_cast<int>(a.channels.remainder(plane));
  const bool makes = live && column < a.result_width;

  const float* const source = a.source + static_cast<int64_t>(plane) * a.source_height * a.source_width;
  float* const rows = reinterpret_cast<float*>(memory) + group * 2 * a.row_elements;
  float brought[kShare];
  const auto bring = [&](int i) {
    const int row = i - a.top;
    const bool inside = live && row >= 0 && row < a.source_height;
    CONVX_UNROLL
    for (int e = 0; e < kShare; ++e) {
      const int index = place + e * columns, from = first * Stride - a.left + index;
      brought[e] = 0;
      if (inside && index < a.row_elements && from >= 0 && from < a.source_width) {
        brought[e] = load<float, 1>(source + (row * a.source_width + from)).element[0];
      }
    }
  };
  const auto put = [&](int i) {
    CONVX_UNROLL
    for (int e = 0; e < kShare; ++e) {
      const int index = place + e * columns;
      if (live && index < a.row_elements) rows[(i & 1) * a.row_elements + index] = brought[e];
    }
  };
  take_turn();
  bring(0);
  float weight[Filter * Filter];
  const float* const filter = a.weight + static_cast<int64_t>(channel) * (Filter * Filter);
  CONVX_UNROLL
  for (int i = 0; i < Filter * Filter; ++i) weight[i] = load<float, 1>(filter + i).element[0];
  const float bias = bias_of(a.bias, channel);
  float* const result = a.result + static_cast<int64_t>(plane) * a.result_height * a.result_width + column;
  put(0);

  const int source_rows = (a.result_height - 1) * Stride + Filter;  // those of the padding too
  float sum[kSums];
  CONVX_UNROLL
  for (int k = 0; k < kSums; ++k) sum[k] = bias;
  for (int base = 0; base < source_rows; base += Stride) {
    unrolled_steps<Stride>([&](auto step) {
      const int phase = step, i = base + phase;
      if (i >= source_rows) return;
      block_barrier();  // row i is there, and row i - 1 no longer read
      if (i + 1 < source_rows) bring(i + 1);
      if (phase == 0) {  // the first row of a new result: sum k is that of result row base / Stride - k
        CONVX_UNROLL
        for (int k = kSums - 1; k > 0; --k) sum[k] = sum[k - 1];
        sum[0] = bias;
      }
      const float* const row = rows + (i & 1) * a.row_elements + place * Stride;
      float window[Filter];
      CONVX_UNROLL
      for (int q = 0; q < Filter; ++q) window[q] = live ? row[q] : 0.0f;
      CONVX_UNROLL
      for (int k = 0; k < kSums; ++k) {
        const int r = phase + Stride * k;
        if (r >= Filter) continue;
        CONVX_UNROLL
        for (int q = 0; q < Filter; ++q) sum[k] = multiply_add(window[q], weight[r * Filter + q], sum[k]);
      }
      CONVX_UNROLL
      for (int k = 0; k < kSums; ++k) {
        const int finished_row = base / Stride - k;
        if (phase + Stride * k != Filter - 1 || finished_row < 0 || !makes) continue;
        float finished[1] = {sum[k]};
        activate<float>(finished, a.activation);
        store<float, 1>(result + finished_row * a.result_width, Vector<float, 1>{{finished[0]}});
      }
      if (i + 1 < source_rows) put(i + 1);
    });
  }
}

}  // namespace convx::depthwise::shared_rows
