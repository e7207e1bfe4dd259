// Pairs of a run's values (runs.h), in kernels.
#pragma once
#include "methods/runs.h"
#include "platform/gpu/platform.h"

namespace convx {

struct Runs {
  int taps, lead, run;  // taps: rows of them, each a run
  FastDivide by_pairs;
};

inline Runs runs_of(int64_t filter_height, const RunGeometry& g) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  return {number(filter_height), number(g.lead), number(g.run), divide_by(g.pairs)};
}

// A pair of the depth: its row of taps, its place in a run of values, and whether it is in one.
struct RunPair {
  int row, first;
  bool is_there;

  CONVX_DEVICE RunPair(const Runs& runs, int index)
      : row(static_cast<int>(runs.by_pairs.quotient(index))),
        first(2 * static_cast<int>(runs.by_pairs.remainder(index)) - runs.lead),
        is_there(row < runs.taps) {}

  CONVX_DEVICE bool has(const Runs& runs, int half) const {
    return is_there && first + half >= 0 && first + half < runs.run;
  }
  // The bits of its values that count.
  CONVX_DEVICE uint32_t mask(const Runs& runs) const {
    return (has(runs, 0) ? 0xffffu : 0u) | (has(runs, 1) ? 0xffff0000u : 0u);
  }
  // In rows of an image pitch bytes apart, behind the first value that leads.
  CONVX_DEVICE int place(const Runs& runs, int pitch) const {
    return is_there ? row * pitch + (first + runs.lead) * 2 : 0;
  }
};

}  // namespace convx
