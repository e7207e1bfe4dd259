// How much memory the CPU kernels' tasks take, for the planner and the launcher.
#pragma once
#include <algorithm>

#include "methods/hntmp/cpu/job.h"

namespace convx::hntmp {

// Number: int64_t for sizes that are known to be of memory, double for whatever sizes a user may give.
template <class Number>
ThreadMemory<Number> memory_of(const Sweep& s, int64_t rows, int64_t source_channels, int64_t lanes,
                               DType dtype) {
  const Number accumulator = dtype == DType::float64 ? 8 : 4, block = Number(kBlockVectors * lanes);
  const Number taps = Number(s.filter_height) * Number(s.filter_width);
  const Number across = Number(s.filter_width - 1) * Number(s.dilation_w);
  ThreadMemory<Number> w{};
  w.phases = std::min(Number(s.stride_w), across + 1);
  w.pitch = Number(s.result_width) + across / Number(s.stride_w);
  w.row_step = w.phases * w.pitch;
  w.window_rows =
      Number(rows - 1) * Number(s.stride_h) + Number(s.filter_height - 1) * Number(s.dilation_h) + 1;
  w.channel_step = w.window_rows * w.row_step;
  w.sums = block * Number(rows) * Number(s.result_width);
  w.widened = element_size(dtype) == 2 ? Number(source_channels) * taps * block : 0;
  const Number accumulators = w.sums + w.widened + Number(s.source_channels) * w.channel_step;
  constexpr Number kLine = 64;
  w.offsets = Number(source_channels) * taps;
  w.bytes = (accumulators * accumulator + w.offsets * Number(sizeof(int64_t)) + kLine - 1) / kLine * kLine;
  return w;
}

}  // namespace convx::hntmp
