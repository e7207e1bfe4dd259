// A first convolution in channels_last as products, for planners and launchers.
//
// A row of taps of a pixel is one run of memory, of all its columns and channels, and the runs of
// neighbouring pixels lie a few values apart: the depth of the product is made of pairs of a run's values, a
// 32-bit word each, read where the image's rows lie in shared memory. A run that begins with an odd value has
// one more before it, which counts as zero.
#pragma once
#include <cstdint>

#include "problem/divide.h"

namespace convx {

constexpr int64_t kPieceValues = 8;  // of a copy of 16 bytes
constexpr int64_t kStepPairs = 8;    // of a step of the depth

struct RunGeometry {
  int64_t lead;          // values before a run that make it begin with an even one
  int64_t run;           // values
  int64_t pairs, steps;  // of a run, and of the depth
};

// left: columns of a pixel's taps before its own.
inline RunGeometry run_geometry_of(int64_t filter_height, int64_t filter_width, int64_t channels,
                                   int64_t left) {
  RunGeometry g{};
  g.lead = left * channels & 1;
  g.run = filter_width * channels;
  g.pairs = divide_up(g.lead + g.run, 2);
  g.steps = divide_up(filter_height * g.pairs, kStepPairs);
  return g;
}

}  // namespace convx
