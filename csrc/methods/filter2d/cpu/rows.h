// Source rows as the register tiles read them: accumulators, with the border in place.
#pragma once
#include "methods/epilogue_cpu.h"
#include "methods/filter2d/cpu/job.h"
#include "platform/cpu/rows.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

// platform/cpu/simd.h has them for the other types.
using CONVX_SIMD_NAMESPACE::load;
using CONVX_SIMD_NAMESPACE::store;
using CONVX_SIMD_NAMESPACE::widen;

// uint8 as float; back, rounded to nearest even and saturated, NaN as 0.
template <int L>
CONVX_INLINE Simd<float, L> load(const uint8_t* address) {
#if CONVX_SIMD_BYTES == 64
  const __m128i bytes = load_raw<__m128i>(address);
  return bit_cast<Simd<float, L>>(
      _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepu8_epi32(0xffff, bytes)));
#elif CONVX_SIMD_BYTES == 32
  const __m128i bytes = _mm_cvtsi64_si128(load_raw<long long>(address));
  return bit_cast<Simd<float, L>>(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
#else
  const __m128i zero = _mm_setzero_si128(), bytes = _mm_cvtsi32_si128(load_raw<int>(address));
  const __m128i words = _mm_unpacklo_epi8(bytes, zero);
  return bit_cast<Simd<float, L>>(_mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero)));
#endif
}

template <int L>
CONVX_INLINE void store(uint8_t* address, Simd<float, L> value) {
  using V = Simd<float, L>;
  const V high = broadcast<V>(255.0f);
  const V positive = value > V{} ? value : V{};  // NaN compares false
  const V inside = positive < high ? positive : high;
#if CONVX_SIMD_BYTES == 64
  const __m512i integers = _mm512_maskz_cvtps_epi32(0xffff, bit_cast<__m512>(inside));
  store_raw(address, _mm512_maskz_cvtepi32_epi8(0xffff, integers));
#elif CONVX_SIMD_BYTES == 32
  const __m256i integers = _mm256_cvtps_epi32(bit_cast<__m256>(inside));
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
  store_raw(address, _mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
#else
  const __m128i integers = _mm_cvtps_epi32(bit_cast<__m128>(inside));
  const __m128i words = _mm_packs_epi32(integers, integers);
  store_raw(address, _mm_cvtsi128_si32(_mm_packus_epi16(words, words)));
#endif
}

CONVX_INLINE float widen(uint8_t value) {
  return static_cast<float>(value);
}

// Columns first to first + count of an image row, null for a row of zeros; zeros from there to pitch, a
// multiple of the vector.
template <class T>
CONVX_INLINE void copy_row(const T* row, const FilterProblem& problem, int64_t first, int64_t count,
                           Accumulator<T>* target, int64_t pitch) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  if (row == nullptr) return zero_over(target, pitch);
  const int64_t inside = minimum(maximum(-first, 0), count);
  const int64_t inside_end = maximum(minimum(problem.width - first, count), inside);
  const auto copy_border = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = border_index(first + i, problem.width, problem.border);
      target[i] = column < 0 ? A(0) : widen(row[column]);
    }
  };
  copy_border(0, inside);
  int64_t i = inside;
  for (; i + L <= inside_end; i += L) store<L>(target + i, load<L>(row + first + i));
  for (; i < inside_end; ++i) target[i] = widen(row[first + i]);
  copy_border(inside_end, count);
  for (i = count; i < pitch; ++i) target[i] = A(0);
}

// Finished results to memory.
template <class T>
CONVX_INLINE void store_row(const Accumulator<T>* row, T* target, int64_t count) {
  constexpr int L = kLanes<Accumulator<T>>;
  int64_t i = 0;
  for (; i + L <= count; i += L) store<L>(target + i, load<L>(row + i));
  if (i == count) return;
  T last[L];
  Accumulator<T> rest[L] = {};
  for (int64_t lane = 0; lane < count - i; ++lane) rest[lane] = row[i + lane];
  store<L>(last, load<L>(rest));
  for (int64_t lane = 0; lane < count - i; ++lane) target[i + lane] = last[lane];
}

}  // namespace image_filter
}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
