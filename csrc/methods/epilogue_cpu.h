// The forward epilogue of kernels for CPUs: bias, then activation, of vectors of accumulators.
#pragma once
#include <cmath>

#include "platform/cpu/simd.h"
#include "problem/problem.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// exp to 2 units in the last place: 2^n times a polynomial on [-ln2 / 2, ln2 / 2]. Infinity past the largest
// float, as exp has it; no less than the smallest normal number. NaN stays NaN.
template <int L>
CONVX_INLINE Simd<float, L> exponential(Simd<float, L> x) {
  using V = Simd<float, L>;
  const V high = broadcast<V>(88.7228f), low = broadcast<V>(-87.3f);
  V y = x > high ? high : x;
  y = y < low ? low : y;
  const V shifter = broadcast<V>(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V rounded = y * 1.44269504f + shifter;
  const V n = rounded - shifter;
  V r = y - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = broadcast<V>(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  using I = Simd<int32_t, L>;
  // Scaled in two steps, because n may be 128.
  const I exponent = __builtin_convertvector(n, I);
  const I half = exponent >> 1;
  const V first = bit_cast<V>((half + 127) << 23), second = bit_cast<V>((exponent - half + 127) << 23);
  const V result = p * first * second;
  const V limit = x > high ? broadcast<V>(__builtin_inff()) : result;
  return x != x ? x : limit;
}

template <class A, int L>
CONVX_INLINE Simd<A, L> activate(Simd<A, L> value, Activation activation) {
  using V = Simd<A, L>;
  if (activation == Activation::none) return value;
  const V zero = V{}, six = broadcast<V>(A(6));
  switch (activation) {
    case Activation::relu:
      return value < zero ? zero : value;  // NaN stays NaN, as in torch
    case Activation::relu6: {
      const V low = value < zero ? zero : value;
      return low > six ? six : low;
    }
    case Activation::silu:
      if constexpr (sizeof(A) == 4) {
        return value / (exponential<L>(-value) + A(1));
      } else {
        for (int lane = 0; lane < L; ++lane) value[lane] = value[lane] / (A(1) + std::exp(-value[lane]));
        return value;
      }
    case Activation::hardswish: {
      V gate = value + A(3);
      gate = gate < zero ? zero : gate;
      gate = gate > six ? six : gate;
      return value * gate / A(6);
    }
    case Activation::gelu:
      for (int lane = 0; lane < L; ++lane) {
        const A x = value[lane];
        value[lane] = x * A(0.5) * (A(1) + std::erf(x * A(0.70710678118654752440)));
      }
      return value;
    default:
      return value;
  }
}

// Bias and activation of one channel.
template <class A>
struct Epilogue {
  A bias;
  Activation activation;
  template <int L>
  CONVX_INLINE Simd<A, L> operator()(Simd<A, L> value) const {
    return activate<A, L>(value + bias, activation);
  }
};

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
