// What is compiled: what the planner may choose and the launcher has.
#pragma once

namespace convx::depthwise::channels_rolling {

constexpr int kThreads = 64;
constexpr int kColumns = 7;  // of results, a lane

// Of a multiprocessor, that the registers must allow. Two channels a lane have twice the sums; float16 takes
// some registers more to be widened.
constexpr int blocks_of(int filter, int channels, bool is_float16) {
  const int most = channels == 2 ? (filter == 7 ? 6 : 8) : (filter == 7 ? 8 : 10);
  return most - (is_float16 ? 2 : 0);
}

}  // namespace convx::depthwise::channels_rolling
