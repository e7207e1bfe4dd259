// What a launch costs, by what its tile does. Fitted to all tiles of P1-P45 at batch 1, 8 and 64 and of
// cuConv's 1x1 layers at 1, 8 and 32 on an H200; float32's elements and shifted rows to sixteen of the latter
// with odd planes, channels to fifteen of the former, nine in float32. The tile with the least takes 0 to 4 %
// longer than the fastest, 5 % for elements of 16 bits.
#pragma once
#include "methods/pointwise/tensor/tiles.h"

namespace convx::pointwise::tensor {

// Microseconds. flow is the part of a tile's waits that a block spares which has the next tile's stages under
// way.
struct Cost {
  double launch, in, out, products, reads, wave, chunk, step, memory, exchange, rows, flow;
};

// Of 16-bit elements.
constexpr Cost half_cost(Access access) {
  switch (access) {
    // launch, in, out, products, reads, wave, chunk, step, memory, exchange, rows, flow
    case kRows:
      return {.5, .665, .21, .494, .0294, 1.26, .0299, .186, .0415, .0711, .2, .239};
    case kShortRows:
      return {.5, 1.23, 2.92, .203, .0341, .504, .0184, .114, .124, 1.05, .0203, .535};
    case kPlanes:
      return {.5, .102, .442, 1.71, .0278, 1.34, .208, .151, .177, .138, .216, .91};
    case kElements:
      return {3.5, .471, 4, 6, .03, .804, .0159, 1, .181, .0771, .0494, .91};
    case kChannels:
      return {.542, .0662, 1.26, .644, 0, 1.24, 0, .175, .895, 0, .0439, .91};
    default:
      return {};  // has no tiles
  }
}

// Of float32 rounded to TF32; its rows begin at pieces, or lie as shifted ones.
constexpr Cost tf32_cost(Access access) {
  switch (access) {
    // launch, in, out, products, reads, wave, chunk, step, memory, exchange, rows, flow
    case kRows:
      return {.555, .446, .98, .593, .0304, .891, .115, .136, .0917, .801, .0555, .232};
    case kPlanes:
      return {.5, .0481, .323, 1.11, .0256, .904, .426, .0309, .198, .0299, .394, .5};
    case kElements:
      return {1.64, .373, .478, 0, 0, 0, .164, .284, .589, 0, .268, .5};
    case kChannels:
      return {1.31, .193, .689, .965, 0, .356, 0, .112, .433, 0, .0601, .5};
    case kShifted:
      return {1.83, .367, 1.29, 0, 1.86, 0, .153, .0672, .447, .612, .08, .232};
    default:
      return {};  // has no tiles
  }
}

// Of float32 as the sum of two parts.
constexpr Cost split_cost(Access access) {
  switch (access) {
    // launch, in, out, products, reads, wave, chunk, step, memory, exchange, rows, flow
    case kRows:
      return {.662, .349, 1.21, 1.09, .844, .522, .0494, .162, .062, 1.34, .0361, .32};
    case kPlanes:
      return {.5, .0778, 2.6, 1.11, .508, .246, .281, .134, .163, 1.65, .275, .87};
    case kElements:
      return {1.16, .337, 0, 1.18, 0, .169, .284, .361, .186, .159, .214, .87};
    case kChannels:
      return {.297, .124, 1.47, 1.04, 2.65, 1.68, 0, .114, .295, 0, 0, .87};
    case kShifted:
      return {1.43, .422, .227, .618, .401, .417, .133, .106, .487, .231, .211, .32};
    default:
      return {};  // has no tiles
  }
}
constexpr Cost cost_of(Precision precision, Access access) {
  if (element_bytes(precision) == 2) return half_cost(access);
  return precision == kTf32 ? tf32_cost(access) : split_cost(access);
}

}  // namespace convx::pointwise::tensor
