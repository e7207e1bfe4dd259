// The pixels of a window, in registers as the first product takes them.
#pragma once
#include "methods/inverted_residual/banded/arguments.cuh"
#include "platform/gpu/non_finite.h"

namespace convx::inverted_residual::banded {

// Of a warp: every so many of the window's rows. A lane has four channels of a pixel for each step of the
// depth.
template <class T, class Form>
class Source {
 public:
  static constexpr int kRows = Form::kRows, kSteps = Form::kShape.depth_steps;

  CONVX_DEVICE Source(const Arguments<T>& a, const Window& w, int warp, int lane) {
    const T* const image = a.source + static_cast<int64_t>(w.image) * a.height * a.width * a.channels;
    CONVX_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int row = w.top + warp + i * Form::kWarps;
      const bool is_row = static_cast<uint32_t>(row) < static_cast<uint32_t>(a.height);
      CONVX_UNROLL
      for (int tile = 0; tile < 2; ++tile) {
        const int column = w.left + tile * 8 + lane / 4;
        const bool is_pixel = is_row && static_cast<uint32_t>(column) < static_cast<uint32_t>(a.width);
        const T* const from = image + (row * a.width + column) * a.channels + lane % 4 * 4;
        CONVX_UNROLL
        for (int step = 0; step < kSteps; ++step) {
          const bool is_there = is_pixel && step * 16 + lane % 4 * 4 < a.channels;
          pixels_[i][tile][step] = {};
          if (is_there) {
            pixels_[i][tile][step] = *reinterpret_cast<const Vector<uint32_t, 2>*>(from + step * 16);
          }
        }
      }
    }
  }

  CONVX_DEVICE bool has_non_finite() const {
    NonFinite<T> found;
    CONVX_UNROLL
    for (int i = 0; i < kRows * 2 * kSteps; ++i) {
      const auto& words = pixels_[i / kSteps / 2][i / kSteps % 2][i % kSteps];
      found.look_at(words.element[0]), found.look_at(words.element[1]);
    }
    return found.any();
  }

  CONVX_DEVICE const Vector<uint32_t, 2>& pixels(int row, int tile, int step) const {
    return pixels_[row][tile][step];
  }

 private:
  Vector<uint32_t, 2> pixels_[kRows][2][kSteps];
};

}  // namespace convx::inverted_residual::banded
