// Element types and what they are accumulated in: float for 16 and 32 bits, double for 64.
#pragma once
#include <cstdint>

namespace convx {

// Storage of the two 16-bit formats, the same type on every platform; arithmetic is done in float.
struct float16 {
  uint16_t bits;
};
struct bfloat16 {
  uint16_t bits;
};

template <class T>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};
template <class T>
using Accumulator = typename AccumulatorOf<T>::type;

CONVX_DEVICE float bits_to_float(uint32_t bits) {
#if defined(CONVX_SIMT)
  return __builtin_bit_cast(float, bits);
#else
  return __uint_as_float(bits);
#endif
}
CONVX_DEVICE uint32_t float_to_bits(float value) {
#if defined(CONVX_SIMT)
  return __builtin_bit_cast(uint32_t, value);
#else
  return __float_as_uint(value);
#endif
}

CONVX_DEVICE float widen(float value) {
  return value;
}
CONVX_DEVICE double widen(double value) {
  return value;
}
CONVX_DEVICE float widen(bfloat16 value) {
  return bits_to_float(static_cast<uint32_t>(value.bits) << 16);
}
CONVX_DEVICE float widen(float16 value) {
#if defined(CONVX_CUDA)
  return __half2float(__ushort_as_half(value.bits));
#else
  _Float16 half;
  __builtin_memcpy(&half, &value.bits, sizeof half);
  return static_cast<float>(half);
#endif
}

// narrow<T>(accumulator): round to nearest even.
template <class T>
CONVX_DEVICE T narrow(Accumulator<T> value);
template <>
CONVX_DEVICE float narrow<float>(float value) {
  return value;
}
template <>
CONVX_DEVICE double narrow<double>(double value) {
  return value;
}
template <>
CONVX_DEVICE bfloat16 narrow<bfloat16>(float value) {
#if defined(CONVX_CUDA)
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // quiet NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}
template <>
CONVX_DEVICE float16 narrow<float16>(float value) {
#if defined(CONVX_CUDA)
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const _Float16 half = static_cast<_Float16>(value);
  float16 result;
  __builtin_memcpy(&result.bits, &half, sizeof half);
  return result;
#endif
}

CONVX_DEVICE float multiply_add(float a, float b, float c) {
#if defined(CONVX_SIMT)
  return __builtin_fmaf(a, b, c);
#else
  return fmaf(a, b, c);
#endif
}
CONVX_DEVICE double multiply_add(double a, double b, double c) {
#if defined(CONVX_SIMT)
  return __builtin_fma(a, b, c);
#else
  return fma(a, b, c);
#endif
}

}  // namespace convx
