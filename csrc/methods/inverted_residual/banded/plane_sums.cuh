// Sums of filtered planes, whose means squeeze-and-excitation asks for: products with ones, exact in what
// they multiply. Results outside the image or the tile count as zero.
#pragma once
#include <type_traits>

#include "methods/inverted_residual/banded/arguments.cuh"
#include "platform/gpu/mma.h"
#include "platform/gpu/warp.h"

namespace convx::inverted_residual::banded {

template <class T, class Form>
class PlaneSums {
 public:
  // Of up to eight channels of a warp: column i of a product is the i-th one's.
  struct OfWarp {
    float sum[4] = {};
  };

  CONVX_DEVICE PlaneSums(const Arguments<T>& a, const Window& w, int lane) : lane_(lane) {
    // A lane's words are pairs of neighbouring columns of results, or rows of flat tiles.
    const int rows = w.rows(a), columns = w.columns<Form>(a);
    const int near = Form::kIsFlat ? rows : columns, far = Form::kIsFlat ? columns : rows;
    CONVX_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int pair = half * 8 + lane % 4 * 2;
      mask_[half] = (pair < near ? 0xffffu : 0u) | (pair + 1 < near ? 0xffff0000u : 0u);
      is_inside_[half] = half * 8 + lane / 4 < far;
    }
  }

  // words: of a channel, as Filter makes them.
  CONVX_DEVICE void add(OfWarp& sums, const uint32_t (&words)[4], int index) const {
    if constexpr (Form::kEnd == End::filtered) {
      constexpr uint32_t kOnes = std::is_same<T, bfloat16>::value ? 0x3f803f80u : 0x3c003c00u;
      const uint32_t ones = lane_ / 4 == index ? kOnes : 0u;
      if constexpr (Form::kNear == 16) {
        const uint32_t inside[4] = {words[0] & mask_[0], words[1] & mask_[0], words[2] & mask_[1],
                                    words[3] & mask_[1]};
        multiply_fragments<32, T>(sums.sum, inside, ones, ones);
      } else {
        multiply_half_fragments<32, T>(sums.sum, words[0] & mask_[0], words[1] & mask_[0], ones);
      }
    }
  }

  // first_plane: of the warp's.
  CONVX_DEVICE void store(const Arguments<T>& a, const Window& w, const OfWarp& sums, int first_channel,
                          int first_plane) const {
    if constexpr (Form::kEnd == End::filtered) {
      float of[2];
      CONVX_UNROLL
      for (int i = 0; i < 2; ++i) {
        of[i] = (is_inside_[0] ? sums.sum[i] : 0.0f) + (is_inside_[1] ? sums.sum[2 + i] : 0.0f);
        CONVX_UNROLL
        for (int mask = 4; mask < 32; mask *= 2) of[i] += shuffle_xor<32>(of[i], mask);
      }
      constexpr int kPlanes = (Form::kChunk / 2 + Form::kWarps - 1) / Form::kWarps * 2;
      const int plane = lane_ * 2;
      if (plane >= kPlanes || first_plane + plane >= Form::kChunk) return;
      CONVX_UNROLL
      for (int i = 0; i < 2; ++i) store_sum(a, w, first_channel, first_plane + plane + i, of[i]);
    }
  }

  CONVX_DEVICE static void store_sum(const Arguments<T>& a, const Window& w, int first_channel, int plane,
                                     float sum) {
    const int channel = first_channel + channel_of_plane(Form::kEnd, plane);
    if (channel >= a.expanded_channels) return;
    a.plane_sums[static_cast<int64_t>(w.tile) * a.expanded_channels + channel] = sum;
  }

 private:
  int lane_;
  uint32_t mask_[2];
  bool is_inside_[2];
};

}  // namespace convx::inverted_residual::banded
