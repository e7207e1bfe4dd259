// The forward epilogue on the device, in the accumulator's type.
#pragma once
#include "methods/activate.cuh"
#include "methods/epilogue.h"
#include "platform/gpu/platform.h"

namespace convx {

// Bias of a channel, or zero: what its sums begin with, or have added before finish(). bias: initial_bias.
template <class T>
CONVX_DEVICE Accumulator<T> bias_of(const T* bias, int64_t channel) {
  return bias != nullptr ? widen(load<T, 1>(bias + channel).element[0]) : Accumulator<T>(0);
}

// Where the residual of the result at `place` is.
template <class T>
CONVX_DEVICE const T* residual_of(const Finishing<T>& finishing, const void* place) {
  return reinterpret_cast<const T*>(static_cast<const char*>(place) + finishing.residual_distance);
}

// Residuals of N results at neighbouring addresses, read as they are written: at once, or those that exist.
template <class T, int N>
CONVX_DEVICE void read_residuals(const Finishing<T>& finishing, const void* place, T (&residuals)[N]) {
  const Vector<T, N> read = load<T, N>(residual_of(finishing, place));
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) residuals[i] = read.element[i];
}
template <class T, int N>
CONVX_DEVICE void read_residuals(const Finishing<T>& finishing, const void* place, int begin, int end,
                                 T (&residuals)[N]) {
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) {
    residuals[i] = T{};
    if (i >= begin && i < end) residuals[i] = load<T, 1>(residual_of(finishing, place) + i).element[0];
  }
}

template <class T, int N, class ChannelOf>
CONVX_DEVICE void rescale(Accumulator<T> (&row)[N], const Finishing<T>& finishing,
                          const ChannelOf& channel_of) {
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) {
    const int64_t channel = channel_of(i);
    const Accumulator<T> scale = widen(load<T, 1>(finishing.scale + channel).element[0]);
    row[i] = multiply_add(row[i], scale, bias_of(finishing.shift, channel));
  }
}

template <class T, int N, class ChannelOf, class AddResiduals>
CONVX_DEVICE void finish_all(Accumulator<T> (&row)[N], const Finishing<T>& finishing,
                             const ChannelOf& channel_of, const AddResiduals& add_residuals) {
  if (finishing.more != 0) {
    if (finishing.more & kScale) rescale(row, finishing, channel_of);
    if (finishing.more & kResidualBefore) add_residuals();
  }
  activate<T>(row, finishing.activation);
  if (finishing.more & kResidualAfter) add_residuals();
}

// A row of sums, their bias in them already: scale, residual and activation. What most calls don't have is
// behind one test that all lanes answer alike. Where kernels are not to have it no trace of it is left:
// compilers keep registers for what turns out to be nothing. channel_of(i): of the row's i-th sum;
// read(residuals): into an array of as many.
template <class T, int N, class ChannelOf, class Read>
CONVX_DEVICE void finish(Accumulator<T> (&row)[N], const Finishing<T>& finishing, const ChannelOf& channel_of,
                         const Read& read) {
  if constexpr (!Finishing<T>::kAddsMore) {
    activate<T>(row, finishing.activation);
  } else {
    finish_all<T>(row, finishing, channel_of, [&] {
      T residuals[N];
      read(residuals);
      CONVX_UNROLL
      for (int i = 0; i < N; ++i) row[i] += Accumulator<T>(widen(residuals[i]));
    });
  }
}

// The same in few registers, for kernels that have none left: one residual at a time, by rotating the row.
// All sums are of one channel; place_of(i): where the i-th is written, null where it is not.
template <class T, int N, class PlaceOf>
CONVX_DEVICE void finish_by_turns(Accumulator<T> (&row)[N], const Finishing<T>& finishing, int64_t channel,
                                  const PlaceOf& place_of) {
  if constexpr (!Finishing<T>::kAddsMore) {
    activate<T>(row, finishing.activation);
  } else {
    finish_all<T>(
        row, finishing, [&](int) { return channel; },
        [&] {
          CONVX_NO_UNROLL
          for (int turn = 0; turn < N; ++turn) {
            const T* const place = place_of(turn);
            Accumulator<T> first = row[0];
            if (place != nullptr) first += widen(*residual_of(finishing, place));
            unrolled<N - 1>([&](auto step) { row[decltype(step)::value] = row[decltype(step)::value + 1]; });
            row[N - 1] = first;
          }
        });
  }
}

// The same of one sum that becomes the result at `place`.
template <class T>
CONVX_DEVICE T finished(Accumulator<T> sum, const Finishing<T>& finishing, int64_t channel, const T* place) {
  if constexpr (Finishing<T>::kAddsMore) {
    if (finishing.more & kScale) {
      const Accumulator<T> scale = widen(finishing.scale[channel]);
      sum = multiply_add(sum, scale, bias_of(finishing.shift, channel));
    }
    if (finishing.more & kResidualBefore) sum += widen(*residual_of(finishing, place));
  }
  sum = activated<T>(sum, finishing.activation);
  if constexpr (Finishing<T>::kAddsMore) {
    if (finishing.more & kResidualAfter) sum += widen(*residual_of(finishing, place));
  }
  return narrow<T>(sum);
}

}  // namespace convx
