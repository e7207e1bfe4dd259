// Results of channels_last kernels, from the sums on.
#pragma once
#include "methods/depthwise/channels/lane.cuh"
#include "methods/epilogue.cuh"

namespace convx::depthwise::channels {

// Finishes the sums of a row of results and writes those whose columns lie in it. Without AnyEpilogue there
// is no more than a bias and an activation but gelu: the code of the others costs registers.
template <bool AnyEpilogue, int Channels, class T, int Sums>
CONVX_DEVICE void write_row(float (&sum)[Sums], const Finishing<T>& finishing, int channel, char* line,
                            uint32_t pixel_pitch, uint32_t inside) {
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
  } else {
    activate_shortly<T>(sum, finishing.activation);
  }
  CONVX_UNROLL
  for (int t = 0; t < kColumns; ++t) {
    if (inside >> t & 1) write_lane<T, Channels>(line + t * pixel_pitch, sum + t * Channels);
  }
}

}  // namespace convx::depthwise::channels
