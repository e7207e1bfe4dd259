// CPU vectors for kernels that are compiled once per instruction set. Include it from one translation unit
// per set, after the standard headers and the target pragma, with CONVX_SIMD_NAMESPACE, CONVX_SIMD_BYTES
// (vector width) and CONVX_SIMD_REGISTERS defined. Everything lives in that namespace and nothing here uses a
// template of the standard library, so no inline function with wide instructions is shared between the sets.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#if !defined(CONVX_SIMD_NAMESPACE) || !defined(CONVX_SIMD_BYTES) || !defined(CONVX_SIMD_REGISTERS)
#error "define CONVX_SIMD_NAMESPACE, CONVX_SIMD_BYTES and CONVX_SIMD_REGISTERS first"
#endif

#define CONVX_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define CONVX_UNROLLED _Pragma("clang loop unroll(full)")
#define CONVX_NO_HOISTING
#else
#define CONVX_UNROLLED _Pragma("GCC unroll 64")
// For functions whose loops need all registers: GCC 12 moves out of them what then has to be spilled inside.
#define CONVX_NO_HOISTING __attribute__((optimize("no-tree-loop-im")))
#endif

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// Storage of the 16-bit formats; arithmetic is done in float.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

// Calls body with an element of the type that a problem's DType names.
template <class Type, class Body>
void with_element(Type dtype, const Body& body) {
  switch (dtype) {
    case Type::float32:
      return body(float());
    case Type::float64:
      return body(double());
    case Type::float16:
      return body(Half());
    case Type::bfloat16:
      return body(Brain());
  }
}

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

template <class Element, int Lanes>
struct SimdOf {
  typedef Element type __attribute__((vector_size(sizeof(Element) * Lanes)));
};
template <class Element, int Lanes>
using Simd = typename SimdOf<Element, Lanes>::type;

// Lanes of a full register of Element.
template <class Element>
constexpr int kLanes = CONVX_SIMD_BYTES / static_cast<int>(sizeof(Element));
constexpr int kRegisters = CONVX_SIMD_REGISTERS;

template <class V>
CONVX_INLINE V load_raw(const void* address) {
  V value;
  __builtin_memcpy(&value, address, sizeof value);
  return value;
}
template <class V>
CONVX_INLINE void store_raw(void* address, V value) {
  __builtin_memcpy(address, &value, sizeof value);
}
template <class To, class From>
CONVX_INLINE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <class V, class Scalar>
CONVX_INLINE V broadcast(Scalar value) {
  return value - V{};  // x - 0 is x for every x, -0 and NaN included, and compiles to one broadcast
}

// NaN stays NaN. In one instruction where there is one, of which GCC makes two of a comparison.
template <class V>
CONVX_INLINE V at_least(V value, V least) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (__is_same(V, Simd<float, 16>)) {
    return bit_cast<V>(_mm512_max_ps(bit_cast<__m512>(least), bit_cast<__m512>(value)));
  }
#endif
#if CONVX_SIMD_BYTES >= 32
  if constexpr (__is_same(V, Simd<float, 8>)) {
    return bit_cast<V>(_mm256_max_ps(bit_cast<__m256>(least), bit_cast<__m256>(value)));
  }
#endif
  return value < least ? least : value;
}
template <class V>
CONVX_INLINE V at_most(V value, V most) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (__is_same(V, Simd<float, 16>)) {
    return bit_cast<V>(_mm512_min_ps(bit_cast<__m512>(most), bit_cast<__m512>(value)));
  }
#endif
#if CONVX_SIMD_BYTES >= 32
  if constexpr (__is_same(V, Simd<float, 8>)) {
    return bit_cast<V>(_mm256_min_ps(bit_cast<__m256>(most), bit_cast<__m256>(value)));
  }
#endif
  return value > most ? most : value;
}

// The two 16-bit formats <-> float, L lanes at once. Narrowing rounds to nearest even.
template <int L>
CONVX_INLINE Simd<float, L> widen_brain(Simd<uint16_t, L> bits) {
  return bit_cast<Simd<float, L>>(__builtin_convertvector(bits, Simd<uint32_t, L>) << 16);
}
template <int L>
CONVX_INLINE Simd<uint16_t, L> narrow_brain(Simd<float, L> value) {
  using U = Simd<uint32_t, L>;
  const U bits = bit_cast<U>(value);
  const U rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const U quiet = bits | 0x400000u;
  const auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return __builtin_convertvector((is_nan ? quiet : rounded) >> 16, Simd<uint16_t, L>);
}
#if CONVX_SIMD_BYTES >= 32
template <int L>
CONVX_INLINE Simd<float, L> widen_half(Simd<uint16_t, L> bits) {
  if constexpr (L == 8) {
    return bit_cast<Simd<float, L>>(_mm256_cvtph_ps(bit_cast<__m128i>(bits)));
  } else if constexpr (L == 4) {
    return bit_cast<Simd<float, L>>(_mm_cvtph_ps(_mm_cvtsi64_si128(bit_cast<long long>(bits))));
  } else {
#if CONVX_SIMD_BYTES == 64
    return bit_cast<Simd<float, L>>(_mm512_maskz_cvtph_ps(0xffff, bit_cast<__m256i>(bits)));
#endif
  }
}
template <int L>
CONVX_INLINE Simd<uint16_t, L> narrow_half(Simd<float, L> value) {
  if constexpr (L == 8) {
    return bit_cast<Simd<uint16_t, L>>(
        _mm256_cvtps_ph(bit_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  } else if constexpr (L == 4) {
    return bit_cast<Simd<uint16_t, L>>(static_cast<long long>(_mm_cvtsi128_si64(
        _mm_cvtps_ph(bit_cast<__m128>(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))));
  } else {
#if CONVX_SIMD_BYTES == 64
    return bit_cast<Simd<uint16_t, L>>(_mm512_maskz_cvtps_ph(0xffff, bit_cast<__m512>(value),
                                                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  }
}
#else
// Without F16C: a half's exponent and mantissa, moved into a float's place, are 2^112 times too small.
template <int L>
CONVX_INLINE Simd<float, L> widen_half(Simd<uint16_t, L> bits) {
  using U = Simd<uint32_t, L>;
  const U wide = __builtin_convertvector(bits, U);
  const U sign = (wide & 0x8000u) << 16;
  const U magnitude = (wide & 0x7fffu) << 13;
  const U scaled = bit_cast<U>(bit_cast<Simd<float, L>>(magnitude) * 0x1p112f);
  const auto special = magnitude >= (0x7c00u << 13);  // infinity or NaN
  return bit_cast<Simd<float, L>>(sign | (special ? magnitude | 0x7f800000u : scaled));
}
template <int L>
CONVX_INLINE Simd<uint16_t, L> narrow_half(Simd<float, L> value) {
  using U = Simd<uint32_t, L>;
  using F = Simd<float, L>;
  const U bits = bit_cast<U>(value);
  const U sign = (bits >> 16) & 0x8000u;
  const U magnitude = bits & 0x7fffffffu;
  const U normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the addition itself rounds to the subnormal's unit, 2^-24.
  const U subnormal = bit_cast<U>(bit_cast<F>(magnitude) + 0.5f) - 0x3f000000u;
  U half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? U{} + 0x7c00u : half;  // 65520 and more round to infinity
  half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x1ffu) : half;
  return __builtin_convertvector(half | sign, Simd<uint16_t, L>);
}
#endif

// L elements of storage as a vector of accumulators, and back. No alignment needed.
template <int L>
CONVX_INLINE Simd<float, L> load(const float* address) {
  return load_raw<Simd<float, L>>(address);
}
template <int L>
CONVX_INLINE Simd<double, L> load(const double* address) {
  return load_raw<Simd<double, L>>(address);
}
template <int L>
CONVX_INLINE Simd<float, L> load(const Brain* address) {
  return widen_brain<L>(load_raw<Simd<uint16_t, L>>(address));
}
template <int L>
CONVX_INLINE Simd<float, L> load(const Half* address) {
  return widen_half<L>(load_raw<Simd<uint16_t, L>>(address));
}
template <int L>
CONVX_INLINE void store(float* address, Simd<float, L> value) {
  store_raw(address, value);
}
template <int L>
CONVX_INLINE void store(double* address, Simd<double, L> value) {
  store_raw(address, value);
}
template <int L>
CONVX_INLINE void store(Brain* address, Simd<float, L> value) {
  store_raw(address, narrow_brain<L>(value));
}
template <int L>
CONVX_INLINE void store(Half* address, Simd<float, L> value) {
  store_raw(address, narrow_half<L>(value));
}

// One element. A half goes through a vector of the narrowest width that converts it.
constexpr int kHalfLanes = CONVX_SIMD_BYTES >= 32 ? 8 : 4;
CONVX_INLINE float widen(float value) {
  return value;
}
CONVX_INLINE double widen(double value) {
  return value;
}
CONVX_INLINE float widen(Brain value) {
  return bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
CONVX_INLINE float widen(Half value) {
  return widen_half<kHalfLanes>(Simd<uint16_t, kHalfLanes>{value.bits})[0];
}
CONVX_INLINE void store_one(float* address, float value) {
  *address = value;
}
CONVX_INLINE void store_one(double* address, double value) {
  *address = value;
}
CONVX_INLINE void store_one(Brain* address, float value) {
  address->bits = narrow_brain<kHalfLanes>(Simd<float, kHalfLanes>{value})[0];
}
CONVX_INLINE void store_one(Half* address, float value) {
  address->bits = narrow_half<kHalfLanes>(Simd<float, kHalfLanes>{value})[0];
}

#if CONVX_SIMD_BYTES >= 32
// The first lanes of a vector of floats. Of the others a load gives zeros, and their memory is not touched.
#if CONVX_SIMD_BYTES == 64
using Part = __mmask16;
#else
using Part = __m256i;
#endif

// count lanes: none below 0, all above L.
template <int L>
CONVX_INLINE Part first_lanes(int64_t count) {
  const int clamped = count > L ? L : count < 0 ? 0 : static_cast<int>(count);
#if CONVX_SIMD_BYTES == 64
  return static_cast<Part>((1u << clamped) - 1);
#else
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(clamped), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#endif
}
template <int L>
CONVX_INLINE Simd<float, L> load_part(const float* address, Part part) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (L == 16)
    return _mm512_maskz_loadu_ps(part, address);
  else
    return _mm256_maskz_loadu_ps(static_cast<__mmask8>(part), address);
#else
  return _mm256_maskload_ps(address, part);
#endif
}
template <int L>
CONVX_INLINE void store_part(float* address, Simd<float, L> value, Part part) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (L == 16)
    _mm512_mask_storeu_ps(address, part, value);
  else
    _mm256_mask_storeu_ps(address, static_cast<__mmask8>(part), value);
#else
  _mm256_maskstore_ps(address, part, value);
#endif
}

// L lanes from lane First of two vectors, one after the other.
template <int First, int L>
CONVX_INLINE Simd<float, L> lanes_from(Simd<float, L> low, Simd<float, L> high) {
#if CONVX_SIMD_BYTES == 64
  if constexpr (L == 16) {
    return bit_cast<Simd<float, L>>(
        _mm512_alignr_epi32(bit_cast<__m512i>(high), bit_cast<__m512i>(low), First));
  } else {
    return bit_cast<Simd<float, L>>(
        _mm256_alignr_epi32(bit_cast<__m256i>(high), bit_cast<__m256i>(low), First));
  }
#else
  const __m256i from = bit_cast<__m256i>(low), to = bit_cast<__m256i>(high);
  const __m256i middle = _mm256_permute2x128_si256(from, to, 0x21);
  if constexpr (First < 4)
    return bit_cast<Simd<float, L>>(_mm256_alignr_epi8(middle, from, 4 * First));
  else
    return bit_cast<Simd<float, L>>(_mm256_alignr_epi8(to, middle, 4 * First - 16));
#endif
}
#endif

// Keeps a loaded vector in its register: without it GCC 12 folds the load into every multiply-add that uses
// it and reads the same memory several times.
template <class V>
CONVX_INLINE void keep(V& value) {
#if CONVX_SIMD_BYTES == 64
  asm("" : "+v"(value));
#else
  asm("" : "+x"(value));
#endif
}

// Sum of all lanes, pairwise.
template <class A, int L>
CONVX_INLINE A sum_lanes(Simd<A, L> v) {
  if constexpr (L == 16) {
    return sum_lanes<A, 8>(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (L == 8) {
    return sum_lanes<A, 4>(__builtin_shufflevector(v, v, 0, 1, 2, 3) +
                           __builtin_shufflevector(v, v, 4, 5, 6, 7));
  } else if constexpr (L == 4) {
    return sum_lanes<A, 2>(__builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3));
  } else {
    return v[0] + v[1];
  }
}

// a0 a1 … and b0 b1 … as the even and the odd elements of the pair (a, b), and the other way round.
template <class V>
CONVX_INLINE V even_lanes(V a, V b) {
  constexpr int L = sizeof(V) / sizeof(a[0]);
  if constexpr (L == 16) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  } else if constexpr (L == 8) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  } else {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
  }
}
template <class V>
CONVX_INLINE V odd_lanes(V a, V b) {
  constexpr int L = sizeof(V) / sizeof(a[0]);
  if constexpr (L == 16) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  } else if constexpr (L == 8) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
  } else {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7);
  }
}
template <class V>
CONVX_INLINE V zip_low(V a, V b) {
  constexpr int L = sizeof(V) / sizeof(a[0]);
  if constexpr (L == 16) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  } else if constexpr (L == 8) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  } else {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  }
}
template <class V>
CONVX_INLINE V zip_high(V a, V b) {
  constexpr int L = sizeof(V) / sizeof(a[0]);
  if constexpr (L == 16) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else if constexpr (L == 8) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
