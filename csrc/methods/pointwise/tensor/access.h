// How the source's pixels come to a block's stages of shared memory: the forms of access, and what of a
// block's sizes, registers and results follows from each.
#pragma once
#include <cstdint>
#include <string>

#include "methods/matrix/precision.h"

namespace convx::pointwise::tensor {

using matrix::element_bytes;
using matrix::kBfloat16;
using matrix::kFloat16;
using matrix::kSplit;
using matrix::kTf32;
using matrix::parts;
using matrix::Precision;
using matrix::step_depth;

enum Access : int { kRows = 0, kShortRows = 1, kPlanes = 2, kElements = 3, kChannels = 4, kShifted = 5 };

// Pixels of an image that is taken whole.
constexpr int kMostPlanePixels = 56, kFewestPlanePixels = 48;

// Whether a lane's sums are of pixels kFragmentColumns apart, not of neighbours.
constexpr bool is_spread(Access access) {
  return access == kPlanes || access == kShifted;
}

template <Access How>
struct Form;

// Rows of [channel][pixels], copied 16 bytes at a time. Of the other forms stands below what differs.
template <>
struct Form<kRows> {
  static constexpr const char* kVariant = "";     // in a plan's name
  static constexpr const char* kOrder = "rows";   // of the channels, by which filters are packed
  static constexpr bool kWholeImages = false;     // a warp's columns are the pixels of an image
  static constexpr bool kTileInImage = false;     // a tile's pixels are of one image
  static constexpr bool kPixelRows = false;       // a stage has rows of channels, one for each pixel
  static constexpr bool kStagesResults = false;   // results pass through shared memory, row by row
  static constexpr bool kOnlyStages = true;       // nothing but stages needs shared memory
  static constexpr bool kSingleElements = false;  // elements are copied one by one, and results written so

  // Neighbouring pixels of a lane: those of its fragments of pixels.
  static constexpr int neighbours(int bytes) { return 16 / bytes; }
  static constexpr int fragments(int neighbours, int /*lanes*/) { return neighbours; }
  // Elements from one row of a stage to the next: pixels and 16 bytes more, so that rows lie in other banks.
  static constexpr int pitch(int columns, int /*depth*/, int /*steps*/, int bytes) {
    return columns + 16 / bytes;
  }
  // And between the rows of results that are written by elements: lanes' 16 bytes of two rows, or words of
  // four, lie in different banks.
  static constexpr int result_pitch(int columns, int bytes) { return columns + 64 / bytes; }
  // Registers that addresses and operands take beside a thread's sums.
  static constexpr int registers(Precision precision, int sums) {
    if (precision == kSplit) return sums >= 56 ? 124 : 92;
    return precision == kTf32 ? 72 : 64;
  }
};

// As rows, copied 8 bytes at a time.
template <>
struct Form<kShortRows> : Form<kRows> {
  static constexpr const char* kOrder = "short rows";
  static constexpr int neighbours(int) { return 4; }
};

// Whole images of 48 to 56 pixels as they lie.
template <>
struct Form<kPlanes> : Form<kRows> {
  static constexpr const char* kOrder = "planes";
  static constexpr bool kWholeImages = true, kOnlyStages = false;
  static constexpr int fragments(int /*neighbours*/, int lanes) {
    const int columns = lanes / 4;
    return (kMostPlanePixels + columns - 1) / columns;
  }
};

// Element by element, which any stride and padding allow.
template <>
struct Form<kElements> : Form<kRows> {
  static constexpr const char* kVariant = "elements";
  static constexpr bool kStagesResults = true, kOnlyStages = false, kSingleElements = true;
  static constexpr int registers(Precision, int) { return 96; }
};

// Of channels_last tensors, rows of [pixel][channels].
template <>
struct Form<kChannels> : Form<kRows> {
  static constexpr const char* kOrder = "channels";
  static constexpr bool kPixelRows = true, kOnlyStages = false;
  static constexpr int fragments(int neighbours, int lanes) {
    return lanes == 64 ? neighbours / 2 : neighbours;
  }
  // An odd number of 64 bytes, so that two neighbouring pixels take all banks.
  static constexpr int pitch(int /*columns*/, int depth, int steps, int bytes) {
    return depth + (steps % 4 == 0 ? 64 / bytes : 0);
  }
  static constexpr int registers(Precision precision, int) {
    return element_bytes(precision) == 2 ? 144 : 112;
  }
};

// The pieces of 16 bytes that rows of float32 lie in which begin between such pieces, a tile in one image.
template <>
struct Form<kShifted> : Form<kRows> {
  static constexpr const char* kVariant = "shifted";
  static constexpr bool kTileInImage = true, kStagesResults = true, kOnlyStages = false;
  // Four shifted channels lie eight banks apart, and up to three more.
  static constexpr int pitch(int columns, int, int, int) { return columns + 8; }
  static constexpr int result_pitch(int columns, int) { return columns + 8; }
};

// Matrix units of AMD's take float32 as it is, so they need no split; pixels of channels_last take more
// scalar registers there than a wave has.
constexpr bool planned_on_amd(Precision precision, Access access) {
  return precision != kSplit && access != kChannels;
}

// Fragments of channels of a group; float32 planes take them four at a time, rows of channels two.
constexpr int64_t steps_of(Precision precision, Access access, int64_t depth) {
  const int64_t steps = (depth + step_depth(precision) - 1) / step_depth(precision);
  if (access == kChannels) return (steps + 1) / 2 * 2;
  return access == kPlanes && element_bytes(precision) == 4 ? (steps + 3) / 4 * 4 : steps;
}

// Fragments of 16 filters of a group; two of them share 32 neighbouring filters where channels are last.
constexpr int64_t row_tiles_of(Access access, int64_t rows) {
  return access == kChannels ? (rows + 31) / 32 * 2 : (rows + 15) / 16;
}

// What Plan::packing is.
inline std::string packing_name(Precision precision, const char* order, int64_t lanes) {
  return "fragments of " + std::to_string(lanes) + " lanes, " + order +
         (precision == kSplit             ? ", split"
          : precision == matrix::kFloat32 ? ", not rounded"
                                          : "");
}

}  // namespace convx::pointwise::tensor
