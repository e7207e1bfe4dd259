// The activations of torch.nn.functional of the same names, in the accumulator's type; gelu is the exact
// (erf) form.
#pragma once
#include "platform/gpu/clamp.h"
#include "platform/gpu/platform.h"
#include "platform/gpu/special.h"
#include "problem/epilogue.h"

namespace convx {

// T: of the results, which says how exact they have to be.
template <class T>
CONVX_DEVICE Accumulator<T> silu(Accumulator<T> value) {
  if constexpr (sizeof(T) == 8) {
    return value / (1.0 + exp(-value));
  } else {
    const float power = sizeof(T) == 4 ? expf(-value) : fast_exp2(value * -1.4426950408889634f);
    // A quarter of the divisor: the reciprocal of the largest is a normal number.
    return value * 0.25f * fast_reciprocal(multiply_add(power, 0.25f, 0.25f));
  }
}

// x times the normal distribution's integral. For results of 16 bits that is, below zero, half of erfc by
// exp(-z^2) t P(t), t = 1 / (1 + p z): fitted to 5e-6 of erfc for all z, a hundredth of float16's rounding.
template <class T>
CONVX_DEVICE Accumulator<T> gelu(Accumulator<T> value) {
  using A = Accumulator<T>;
  if constexpr (sizeof(T) != 2) {
    return value * A(0.5) * (A(1) + erf(value * A(0.70710678118654752440)));
  } else {
    const float z = fabsf(value) * 0.70710678f;
    const float t = fast_reciprocal(multiply_add(z, 0.44f, 1.0f));
    float sum = -0.146110592f;
    sum = multiply_add(sum, t, 0.350665533f);
    sum = multiply_add(sum, t, 0.0407183442f);
    sum = multiply_add(sum, t, 0.263591985f);
    sum = multiply_add(sum, t, 0.242568459f);
    sum = multiply_add(sum, t, 0.248561085f);
    const float half = 0.5f * sum * t * fast_exp2(z * z * -1.4426950408889634f);
    return value * (value < 0.0f ? half : 1.0f - half);
  }
}

CONVX_DEVICE float hardsigmoid(float value) {
  return clamp_keeping_nan(value + 3.0f, 0.0f, 6.0f) * (1.0f / 6.0f);
}

template <class T>
CONVX_DEVICE Accumulator<T> hardswish(Accumulator<T> value) {
  if constexpr (sizeof(T) == 8) {
    const double shifted = value + 3.0;
    return value * (shifted < 0.0 ? 0.0 : shifted > 6.0 ? 6.0 : shifted) / 6.0;
  } else {
    return value * hardsigmoid(value);
  }
}

template <class T>
CONVX_DEVICE Accumulator<T> activated(Accumulator<T> value, Activation activation) {
  using A = Accumulator<T>;
  switch (activation) {
    case Activation::none:
      return value;
    case Activation::relu:
      return value < A(0) ? A(0) : value;  // NaN stays NaN, as in torch
    case Activation::relu6:
      return value < A(0) ? A(0) : value > A(6) ? A(6) : value;
    case Activation::silu:
      return silu<T>(value);
    case Activation::hardswish:
      return hardswish<T>(value);
    case Activation::gelu:
      return gelu<T>(value);
  }
  return value;
}

// None, relu and relu6 of rows of float.
struct ClampRow {
  bool clamps;
  float high;

  CONVX_DEVICE explicit ClampRow(Activation activation)
      : clamps(activation != Activation::none), high(activation == Activation::relu6 ? 6.0f : INFINITY) {}

  template <int N>
  CONVX_DEVICE void operator()(float (&row)[N]) const {
    if (!clamps) return;
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) row[i] = clamp_keeping_nan(row[i], 0.0f, high);
  }
};

// A register row of float at once, by few instructions a value: all but gelu.
template <class T, int N>
CONVX_DEVICE void activate_shortly(float (&row)[N], Activation activation) {
  if (activation == Activation::none) return;
  if (activation == Activation::silu) {
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) row[i] = silu<T>(row[i]);
  } else if (activation == Activation::hardswish) {
    CONVX_UNROLL
    for (int i = 0; i < N; ++i) row[i] = hardswish<T>(row[i]);
  } else {
    ClampRow{activation}(row);
  }
}

// The others, and those of double but clamps, one value at a time through a single copy of their code, by
// rotating the row: N copies of erf would swell every kernel.
template <class T, int N>
CONVX_DEVICE void activate(Accumulator<T> (&row)[N], Activation activation) {
  if constexpr (sizeof(T) == 8) {
    if (activation == Activation::none) return;
    if (activation == Activation::relu || activation == Activation::relu6) {
      const bool capped = activation == Activation::relu6;
      CONVX_UNROLL
      for (int i = 0; i < N; ++i) {
        row[i] = row[i] < 0.0 ? 0.0 : row[i];
        row[i] = capped && row[i] > 6.0 ? 6.0 : row[i];
      }
      return;
    }
  } else {
    if (activation != Activation::gelu) return activate_shortly<T>(row, activation);
  }
  CONVX_NO_UNROLL
  for (int turn = 0; turn < N; ++turn) {
    const Accumulator<T> first = activated<T>(row[0], activation);
    // Not a loop, which compilers make a move of memory.
    unrolled<N - 1>([&](auto step) { row[decltype(step)::value] = row[decltype(step)::value + 1]; });
    row[N - 1] = first;
  }
}

}  // namespace convx
