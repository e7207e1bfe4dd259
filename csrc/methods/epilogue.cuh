// The forward epilogue on the device, in the accumulator's type.
#pragma once
#include "methods/epilogue.h"
#include "platform/gpu/platform.h"

namespace convx {

// The activations of torch.nn.functional of the same names; gelu is the exact (erf) form.
template <class A>
CONVX_DEVICE A activate(A value, Activation activation) {
  switch (activation) {
    case Activation::none:
      return value;
    case Activation::relu:
      return value < A(0) ? A(0) : value;  // NaN stays NaN, as in torch
    case Activation::relu6:
      return value < A(0) ? A(0) : value > A(6) ? A(6) : value;
    case Activation::silu:
      return value / (A(1) + exp(-value));
    case Activation::hardswish: {
      const A shifted = value + A(3);
      return value * (shifted < A(0) ? A(0) : shifted > A(6) ? A(6) : shifted) / A(6);
    }
    case Activation::gelu:
      return value * A(0.5) * (A(1) + erf(value * A(0.70710678118654752440)));
  }
  return value;
}

// A register row at once. Clamps are unrolled; the others go one value at a time through a single copy of
// their code, by rotating the row, because N unrolled copies of exp and erf would swell every kernel.
template <class A, int N>
CONVX_DEVICE void activate(A (&row)[N], Activation activation) {
  if (activation == Activation::none) return;
  if (activation == Activation::relu || activation == Activation::relu6) {
    const bool capped = activation == Activation::relu6;
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) {
      row[i] = row[i] < A(0) ? A(0) : row[i];
      row[i] = capped && row[i] > A(6) ? A(6) : row[i];
    }
    return;
  }
  CONVX_NO_UNROLL
  for (int turn = 0; turn < N; ++turn) {
    const A first = activate(row[0], activation);
    // Not a loop, which compilers make a move of memory.
    unrolled<N - 1>([&](auto step) { row[decltype(step)::value] = row[decltype(step)::value + 1]; });
    row[N - 1] = first;
  }
}

// Bias of a channel, or zero: what its sums begin with, or have added before finish().
template <template <class> class Arguments, class T>
CONVX_DEVICE Accumulator<T> bias_of(const Arguments<T>& epilogue, int64_t channel) {
  return epilogue.bias != nullptr ? widen(load<T, 1>(epilogue.bias + channel).element[0]) : Accumulator<T>(0);
}

// Where the residual of the result at `place` is.
template <class T>
CONVX_DEVICE const T* residual_of(const EpilogueArguments<T>& epilogue, const void* place) {
  return reinterpret_cast<const T*>(static_cast<const char*>(place) + epilogue.residual_distance);
}

// Residuals of N results at neighbouring addresses, read as they are written: at once, or those that exist.
template <class T, int N>
CONVX_DEVICE void read_residuals(const EpilogueArguments<T>& epilogue, const void* place, T (&residuals)[N]) {
  const Vector<T, N> read = load<T, N>(residual_of(epilogue, place));
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) residuals[i] = read.element[i];
}
template <class T, int N>
CONVX_DEVICE void read_residuals(const EpilogueArguments<T>& epilogue, const void* place, int begin, int end,
                                 T (&residuals)[N]) {
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) {
    residuals[i] = T{};
    if (i >= begin && i < end) residuals[i] = load<T, 1>(residual_of(epilogue, place) + i).element[0];
  }
}

template <class T, int N, class ChannelOf>
CONVX_DEVICE void rescale(Accumulator<T> (&row)[N], const EpilogueArguments<T>& epilogue,
                          const ChannelOf& channel_of) {
  CONVX_UNROLL
  for (int i = 0; i < N; ++i) {
    const int64_t channel = channel_of(i);
    const Accumulator<T> scale = widen(load<T, 1>(epilogue.scale + channel).element[0]);
    Accumulator<T> shift = 0;
    if (epilogue.shift != nullptr) shift = widen(load<T, 1>(epilogue.shift + channel).element[0]);
    row[i] = multiply_add(row[i], scale, shift);
  }
}

// A row of sums, their bias in them already: scale, residual and activation. channel_of(i): of its i-th sum;
// read(residuals): into an array of as many. What most calls don't have is behind one test that all lanes
// answer alike.
template <class T, int N, class ChannelOf, class Read>
CONVX_DEVICE void finish(Accumulator<T> (&row)[N], const EpilogueArguments<T>& epilogue,
                         const ChannelOf& channel_of, const Read& read) {
  const auto add_residuals = [&] {
    T residuals[N];
    read(residuals);
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) row[i] += Accumulator<T>(widen(residuals[i]));
  };
  if (epilogue.more != 0) {
    if (epilogue.more & kScale) rescale(row, epilogue, channel_of);
    if (epilogue.more & kResidualBefore) add_residuals();
  }
  activate(row, epilogue.activation);
  if (epilogue.more & kResidualAfter) add_residuals();
}

// The same in few registers, for kernels that have none left: one residual at a time, by rotating the row.
// All sums are of one channel; place_of(i): where the i-th is written, null where it is not.
template <class T, int N, class PlaceOf>
CONVX_DEVICE void finish_by_turns(Accumulator<T> (&row)[N], const EpilogueArguments<T>& epilogue,
                                  int64_t channel, const PlaceOf& place_of) {
  const auto add_residuals = [&] {
    CONVX_NO_UNROLL
    for (int turn = 0; turn < N; ++turn) {
      const T* const place = place_of(turn);
      Accumulator<T> first = row[0];
      if (place != nullptr) first += widen(*residual_of(epilogue, place));
      unrolled<N - 1>([&](auto step) { row[decltype(step)::value] = row[decltype(step)::value + 1]; });
      row[N - 1] = first;
    }
  };
  if (epilogue.more != 0) {
    if (epilogue.more & kScale) rescale(row, epilogue, [&](int) { return channel; });
    if (epilogue.more & kResidualBefore) add_residuals();
  }
  activate(row, epilogue.activation);
  if (epilogue.more & kResidualAfter) add_residuals();
}

// The same of one sum that becomes the result at `place`.
template <class T>
CONVX_DEVICE T finished(Accumulator<T> sum, const EpilogueArguments<T>& epilogue, int64_t channel,
                        const T* place) {
  if (epilogue.more != 0) {
    if (epilogue.more & kScale) {
      Accumulator<T> shift = 0;
      if (epilogue.shift != nullptr) shift = widen(epilogue.shift[channel]);
      sum = multiply_add(sum, Accumulator<T>(widen(epilogue.scale[channel])), shift);
    }
    if (epilogue.more & kResidualBefore) sum += widen(*residual_of(epilogue, place));
  }
  sum = activate(sum, epilogue.activation);
  if (epilogue.more & kResidualAfter) sum += widen(*residual_of(epilogue, place));
  return narrow<T>(sum);
}

}  // namespace convx
