// The forward epilogue on the device: bias, then activation, in the accumulator's type.
#pragma once
#include "platform/platform.h"
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

}  // namespace convx
