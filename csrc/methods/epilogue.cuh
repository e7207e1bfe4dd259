// The forward epilogue on the device: bias, then activation, in the accumulator's type.
#pragma once
#include "platform/gpu/platform.h"
#include "problem/problem.h"

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

}  // namespace convx
