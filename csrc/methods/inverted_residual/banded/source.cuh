// The pixels of a window, in registers as the first product takes them.
#pragma once
#include "methods/inverted_residual/banded/arguments.cuh"
#include "platform/gpu/async_copy.h"
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

  // Of a network's first convolution: values of patches, from rows of the image that lie in shared memory.
  CONVX_DEVICE Source(const Arguments<T>& a, const Window& w, const unsigned char* rows, int warp, int lane) {
    const PatchArguments& p = a.patches;
    int place[kSteps][2];
    uint32_t mask[kSteps][2];
    CONVX_UNROLL
    for (int i = 0; i < 2 * kSteps; ++i) {
      const RunPair pair(p.runs, i / 2 * static_cast<int>(kStepPairs) + lane % 4 * 2 + i % 2);
      place[i / 2][i % 2] = pair.place(p.runs, p.pitch), mask[i / 2][i % 2] = pair.mask(p.runs);
    }
    const int step = p.stride * p.channels * 2;
    const unsigned char* const own = rows + first_of(p, w) + lane / 4 * step;
    CONVX_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CONVX_UNROLL
      for (int tile = 0; tile < 2; ++tile) {
        const unsigned char* const from =
            own + (warp + i * Form::kWarps) * p.stride * p.pitch + tile * 8 * step;
        CONVX_UNROLL
        for (int k = 0; k < 2 * kSteps; ++k) {
          const uint32_t word = *reinterpret_cast<const uint32_t*>(from + place[k / 2][k % 2]);
          pixels_[i][tile][k / 2].element[k % 2] = word & mask[k / 2][k % 2];
        }
      }
    }
  }

  // The rows, in pieces that begin where memory's do: each is inside a row of the image or outside, where all
  // is zero.
  CONVX_DEVICE static void fetch_rows(const Arguments<T>& a, const Window& w, unsigned char* rows) {
    const PatchArguments& p = a.patches;
    const int pieces = static_cast<int>(p.by_pieces.divisor), first = first_value(p, w) & -8;
    const T* const image = a.source + static_cast<int64_t>(w.image) * p.height * p.line;
    for (int i = threadIdx.x; i < p.rows * pieces; i += blockDim.x) {
      const int down = static_cast<int>(p.by_pieces.quotient(i)), piece = i - down * pieces;
      const int y = w.top * p.stride - p.runs.taps / 2 + down, x = first + piece * 8;
      const bool is_inside = static_cast<uint32_t>(y) < static_cast<uint32_t>(p.height) &&
                             static_cast<uint32_t>(x) < static_cast<uint32_t>(p.line);
      copy_async<16>(rows + down * p.pitch + piece * 16, is_inside ? image + y * p.line + x : a.source,
                     is_inside ? 16 : 0);
    }
    commit_copies();
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
  // Of a row of the image: the value before which the window's patches begin, with what leads; and where it
  // lies behind the first piece, in bytes.
  CONVX_DEVICE static int first_value(const PatchArguments& p, const Window& w) {
    return (w.left * p.stride - p.runs.taps / 2) * p.channels - p.runs.lead;
  }
  CONVX_DEVICE static int first_of(const PatchArguments& p, const Window& w) {
    return (first_value(p, w) & 7) * 2;
  }

  Vector<uint32_t, 2> pixels_[kRows][2][kSteps];
};

}  // namespace convx::inverted_residual::banded
