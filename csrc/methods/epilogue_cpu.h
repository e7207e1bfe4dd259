// The forward epilogue of kernels for CPUs, of vectors of accumulators.
#pragma once
#include <cmath>

#include "methods/epilogue.h"
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// exp(x) / 2 to 2 units in the last place, for x from -86 to 88.7228, which is as far as floats go; a number
// of no meaning for others. 2^n times a polynomial on [-ln2 / 2, ln2 / 2], n added to its exponent.
template <int L>
CONVX_INLINE Simd<float, L> half_exponential(Simd<float, L> x) {
  using V = Simd<float, L>;
  using U = Simd<uint32_t, L>;
  const V shifter = broadcast<V>(12582911.0f);  // 1.5 * 2^23 - 1: the last bits of a sum are n - 1
  const V rounded = x * 1.44269504f + shifter;
  const V n = rounded - shifter;
  V r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = broadcast<V>(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return bit_cast<V>(bit_cast<U>(p) + (bit_cast<U>(rounded) << 23));
}

// Of finite numbers that are neither tiny nor huge, to a unit in the last place.
template <int L>
CONVX_INLINE Simd<float, L> reciprocal(Simd<float, L> x) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (L == 16) {  // Newton's step from 14 bits: a division takes five times as long
    const __m512 value = bit_cast<__m512>(x), first = _mm512_rcp14_ps(value);
    const __m512 rest = _mm512_fnmadd_ps(value, first, _mm512_set1_ps(1.0f));
    return bit_cast<Simd<float, L>>(_mm512_fmadd_ps(first, rest, first));
  }
#endif
  return 1.0f / x;
}

// The standard normal distribution: (1 + erf(x / sqrt(2))) / 2, also where that is next to nothing. The tail
// beyond |x| is exp(-x^2 / 2) times a function of t = 1 / (1 + 0.3 |x|) that is nearly a polynomial
// (Abramowitz and Stegun, 7.1.26; fitted anew up to t^8, 1.2e-7 off relatively).
template <int L>
CONVX_INLINE Simd<float, L> normal_distribution(Simd<float, L> x) {
  using V = Simd<float, L>;
  const V most = broadcast<V>(13.0f);  // whose tail is the smallest float
  const V y = at_most(x < 0.0f ? -x : x, most);
  const V t = reciprocal<L>(y * 0.3f + 1.0f);
  V p = broadcast<V>(3.603634743e-2f);
  p = p * t - 1.587137824e-1f;
  p = p * t + 2.089648555e-1f;
  p = p * t - 5.609609607e-2f;
  p = p * t + 1.298435151e-1f;
  p = p * t + 9.952303851e-2f;
  p = p * t + 1.208168955e-1f;
  p = p * t + 1.196251654e-1f;
  V tail = half_exponential<L>(y * y * -0.5f) * (p * (t + t));
  tail = x < -most ? V{} : tail;
  return x < 0.0f ? tail : 1.0f - tail;
}

// 1 / (1 + exp(-x)) to 2 units in the last place.
template <int L>
CONVX_INLINE Simd<float, L> logistic(Simd<float, L> x) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (L == 16) {  // without a division, which takes as long as all the rest
    const __m512 value = bit_cast<__m512>(x), one = _mm512_set1_ps(1.0f);
    const __m512 least = _mm512_set1_ps(-88.7228f);  // below, exp(-x) is no float
    const __m512 y = _mm512_max_ps(least, _mm512_min_ps(_mm512_set1_ps(87.3f), value));
    const __m512 shifter = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(y, _mm512_set1_ps(-1.44269504f), shifter), shifter);
    const __m512 r = _mm512_fnmsub_ps(n, _mm512_set1_ps(0.693147182f), y);
    __m512 p = _mm512_set1_ps(1.3981999507e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    const __m512 d = _mm512_add_ps(_mm512_scalef_ps(p, n), one);
    // Newton's step from 14 bits. Below the least it is 0, which times minus infinity is NaN.
    const __m512 first = _mm512_rcp14_ps(d), rest = _mm512_fnmadd_ps(d, first, one);
    const __mmask16 some = _mm512_cmp_ps_mask(value, least, _CMP_NLT_UQ);
    return bit_cast<Simd<float, L>>(_mm512_maskz_fmadd_ps(some, first, rest, first));
  }
#endif
  using V = Simd<float, L>;
  const V most = broadcast<V>(88.7228f), least = broadcast<V>(-86.0f);  // beyond: 0 and 1
  const V y = at_least(at_most(-x, most), least);
  const V value = 1.0f / (half_exponential<L>(y) * 2.0f + 1.0f);
  return x < -most ? V{} : x != x ? x : value;
}

template <class A, int L>
CONVX_INLINE Simd<A, L> activate(Simd<A, L> value, Activation activation) {
  using V = Simd<A, L>;
  if (activation == Activation::none) return value;
  const V zero = V{}, six = broadcast<V>(A(6));
  switch (activation) {
    case Activation::relu:
      return at_least(value, zero);
    case Activation::relu6:
      return at_most(at_least(value, zero), six);
    case Activation::silu:
      if constexpr (sizeof(A) == 4) {
        return value * logistic<L>(value);
      } else {
        for (int lane = 0; lane < L; ++lane) value[lane] = value[lane] / (A(1) + std::exp(-value[lane]));
        return value;
      }
    case Activation::hardswish:  // a division takes three times as long
      return value * at_most(at_least(value + A(3), zero), six) * A(1.0 / 6);
    case Activation::gelu:
      if constexpr (sizeof(A) == 4) {
        return value * normal_distribution<L>(value);
      } else {
        for (int lane = 0; lane < L; ++lane) {
          const A x = value[lane];
          value[lane] = x * A(0.5) * (A(1) + std::erf(x * A(0.70710678118654752440)));
        }
        return value;
      }
    default:
      return value;
  }
}

// Where the residual of the result at `place` is.
template <class T>
CONVX_INLINE const T* residual_of(const T* place, int64_t distance) {
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(place) + distance);
}

// The residuals of results at `place`, `step` elements apart, the first `count` of the lanes.
template <class T, int L>
CONVX_INLINE Simd<Accumulator<T>, L> load_residuals(const T* place, int64_t distance, int64_t count,
                                                    int64_t step) {
  using V = Simd<Accumulator<T>, L>;
  const T* const residuals = residual_of(place, distance);
  if (step == 1 && count >= L) return load<L>(residuals);
  V value{};
  for (int64_t lane = 0; lane < count && lane < L; ++lane) value[lane] = widen(residuals[lane * step]);
  return value;
}

// What follows scale and bias, of results at `place`: residual and activation. Of the lanes, the first
// `count` exist, `step` elements apart in memory.
template <class T>
struct Ending {
  int64_t residual_distance;
  uint32_t more;
  Activation activation;
  explicit Ending(const EpilogueArguments<void>& a)
      : residual_distance(a.residual_distance), more(a.more), activation(a.activation) {}

  CONVX_INLINE bool adds() const { return (more & (kResidualBefore | kResidualAfter)) != 0; }

  template <int L>
  CONVX_INLINE Simd<Accumulator<T>, L> operator()(Simd<Accumulator<T>, L> value, const T* place,
                                                  int64_t count = L, int64_t step = 1) const {
    Simd<Accumulator<T>, L> residuals{};
    if (adds()) residuals = load_residuals<T, L>(place, residual_distance, count, step);
    return with<L>(value, residuals);
  }

  // residuals: not looked at where it adds none. One copy of the activation's code for all forms.
  template <int L>
  CONVX_INLINE Simd<Accumulator<T>, L> with(Simd<Accumulator<T>, L> value,
                                            Simd<Accumulator<T>, L> residuals) const {
    if (more & kResidualBefore) value += residuals;
    value = activate<Accumulator<T>, L>(value, activation);
    if (more & kResidualAfter) value += residuals;
    return value;
  }
};

// The epilogue of one channel.
template <class T>
struct ChannelEpilogue {
  using A = Accumulator<T>;
  A scale, bias;
  Ending<T> ending;

  // begun: the sums began with their bias.
  ChannelEpilogue(const EpilogueArguments<void>& a, int64_t channel, bool begun = false)
      : scale(parameter(a.scale, channel, A(1))),
        bias(parameter(begun || a.scale != nullptr ? a.shift : a.bias, channel, A(0))),
        ending(a) {}

  static A parameter(const void* values, int64_t channel, A otherwise) {
    return values != nullptr ? A(widen(static_cast<const T*>(values)[channel])) : otherwise;
  }
  template <int L>
  CONVX_INLINE Simd<A, L> operator()(Simd<A, L> value, const T* place, int64_t count = L,
                                     int64_t step = 1) const {
    return ending.template operator()<L>(value * scale + bias, place, count, step);
  }
};

// The epilogue of L neighbouring channels from `channel` on, a lane each, of which the first `count` exist.
template <class T, int L>
struct LaneEpilogue {
  using A = Accumulator<T>;
  using V = Simd<A, L>;
  V scale = broadcast<V>(A(1)), bias{};
  Ending<T> ending;

  LaneEpilogue(const EpilogueArguments<void>& a, int64_t channel, int64_t count) : ending(a) {
    for (int64_t lane = 0; lane < count; ++lane) {
      const ChannelEpilogue<T> own(a, channel + lane);
      scale[lane] = own.scale, bias[lane] = own.bias;
    }
  }
  CONVX_INLINE V scaled(V value) const { return value * scale + bias; }
  CONVX_INLINE V operator()(V value, const T* place, int64_t count = L) const {
    return ending.template operator()<L>(scaled(value), place, count);
  }
};

// L neighbouring channels from `channel` on, all of which exist: what their sums begin with, and the scale
// that comes later.
template <class T, int L>
CONVX_INLINE Simd<Accumulator<T>, L> begin_of(const EpilogueArguments<void>& a, int64_t channel) {
  using V = Simd<Accumulator<T>, L>;
  return a.bias != nullptr ? load<L>(static_cast<const T*>(a.bias) + channel) : V{};
}
template <class T, int L>
CONVX_INLINE Simd<Accumulator<T>, L> rescaled(Simd<Accumulator<T>, L> value, const EpilogueArguments<void>& a,
                                              int64_t channel) {
  if (a.scale == nullptr) return value;
  value *= load<L>(static_cast<const T*>(a.scale) + channel);
  return a.shift != nullptr ? value + load<L>(static_cast<const T*>(a.shift) + channel) : value;
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
