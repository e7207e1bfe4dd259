// Results of channels_last kernels, from the sums on.
#pragma once
#include "methods/depthwise/channels/lane.cuh"
#include "methods/epilogue.cuh"

namespace convx::depthwise::channels {

// Finishes the sums of a row of results and writes those whose columns lie in it. clamped: by relu or relu6.
template <bool AnyEpilogue, int Channels, class T, int Sums>
CONVX_DEVICE void write_row(float (&sum)[Sums], const Finishing<T>& finishing, bool clamped, int channel,
                            char* line, uint32_t pixel_pitch, uint32_t inside) {
  constexpr int kColumns = Sums / Channels;
  if constexpr (AnyEpilogue) {
    finish(
        sum, finishing, [&](int i) { return channel + i % Channels; },
        [&](T(&residuals)[Sums]) {
          CONVX_UNROLL
          for (int t = 0; t < kColumns; ++t) {
            T own[Channels] = {};
            if (inside >> t & 1) read_residuals(finishing, line + t * pixel_pitch, own);
            CONVX_UNROLL
            for (int v = 0; v < Channels; ++v) residuals[t * Channels + v] = own[v];
          }
        });
  } else if (clamped) {
    const bool capped = finishing.activation == Activation::relu6;
    CONVX_UNROLL
    for (int i = 0; i < Sums; ++i) {
      sum[i] = sum[i] < 0.0f ? 0.0f : sum[i];
      if (capped) sum[i] = sum[i] > 6.0f ? 6.0f : sum[i];
    }
  }
  CONVX_UNROLL
  for (int t = 0; t < kColumns; ++t) {
    if (inside >> t & 1) write_lane<T, Channels>(line + t * pixel_pitch, sum + t * Channels);
  }
}

}  // namespace convx::depthwise::channels
