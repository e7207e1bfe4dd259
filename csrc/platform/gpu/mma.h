// Products of fragments on matrix units: sum[16 rows][columns] += a[16 rows][depth] * b[depth][columns],
// shared out over a warp. mma.sync on NVIDIA GPUs (sm_80 and later, 32 lanes, 8 columns), MFMA on AMD's CDNA
// (gfx90a and later, 64 lanes, 16 columns); on the host executor both shapes by exchange between lanes.
//
// A lane holds four sums, and of its column of b as many values of the depth as fit two words: 4 of 16 bits
// or 2 of float32. Which channel a value belongs to is the caller's choice, the same for a and b, so that b
// can be read in the order in which it lies.
#pragma once
#include "platform/gpu/pack.h"
#include "platform/gpu/platform.h"

#if defined(CONVX_HIP) && defined(__HIP_DEVICE_COMPILE__)
#if defined(__gfx90a__) || defined(__gfx942__)
#define CONVX_MFMA 1
#define CONVX_SKIP_WITHOUT_MATRIX_UNITS()
#else
#define CONVX_SKIP_WITHOUT_MATRIX_UNITS() return
#endif
#else
#define CONVX_SKIP_WITHOUT_MATRIX_UNITS()
#endif

namespace convx {

// float32 operands of which matrix units keep 10 bits of mantissa; CDNA's keep all.
struct tf32 {
  uint32_t bits;
};

template <int Lanes>
struct Fragment {
  static_assert(Lanes == 32 || Lanes == 64, "lanes");
  static constexpr int kColumns = Lanes / 4;
  static constexpr int kWordsA = 128 / Lanes;  // 512 bytes in all
  static constexpr int kSlots = 4;             // lanes that share a column of b

  CONVX_DEVICE static int column_of_b(int lane) { return Lanes == 32 ? lane / 4 : lane % 16; }
  CONVX_DEVICE static int slot(int lane) { return Lanes == 32 ? lane % 4 : lane / 16; }
  // Of a's word: the row, and which of the lane's two words of depth.
  CONVX_DEVICE static int row_of_a(int lane, int word) {
    return Lanes == 32 ? lane / 4 + 8 * (word & 1) : lane % 16;
  }
  CONVX_DEVICE static int depth_word_of_a(int word) { return Lanes == 32 ? word >> 1 : word; }
  // Of a sum.
  CONVX_DEVICE static int row(int lane, int i) {
    return Lanes == 32 ? lane / 4 + 8 * (i >> 1) : lane / 16 * 4 + i;
  }
  CONVX_DEVICE static constexpr int row_step(int i) {
    return Lanes == 32 ? 8 * (i >> 1) : i;
  }  // row(i) - row(0)
  CONVX_DEVICE static int column(int lane, int i) {
    return Lanes == 32 ? 2 * (lane % 4) + (i & 1) : lane % 16;
  }
};

// Rounds to nearest with ties away from zero; infinities and NaN stay.
CONVX_DEVICE uint32_t round_to_tf32(float value) {
#if defined(CONVX_CUDA)
  uint32_t bits = 0;
#if defined(__CUDA_ARCH__)
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
  return bits;
#elif defined(CONVX_HIP)
  return float_to_bits(value);
#else
  const uint32_t bits = float_to_bits(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
#endif
}

// Two parts that sum to the value but for its last bit, in three instructions where rounding each takes nine:
// what is left of the first 11 bits has 12, of which the unit drops the last. What is not finite, or rounds
// to an infinity, has a part that is not a number, so that sums with it are not finite.
CONVX_DEVICE void part_tf32(uint32_t value, uint32_t& high, uint32_t& low) {
  high = (value + 0x1000u) & ~0x1fffu;
  low = float_to_bits(bits_to_float(value) - bits_to_float(high));
}

// A filter's value for products in parts, whose sums matrix units make smaller: they drop what is below the
// last digit, of sums of either sign, in the mean 0.63 of 2^-24 of the sum where three products of parts are
// chained and 0.9 where six are (H200). That is less than a layer's error by chance, but alike in all layers:
// in a network it adds up. So every other channel's filter has its last digit one larger, which is 0.72 of
// 2^-24 of the sum in the mean. Values of at most 11 bits stay: sums of such products are exact.
CONVX_DEVICE float against_dropped_digits(float value, [[maybe_unused]] int channel) {
#if !defined(CONVX_HIP)
  const uint32_t bits = float_to_bits(value), exponent = bits >> 23 & 0xff;
  // Not to an infinity, nor what is none or not normal.
  const bool has_next = exponent >= 1 && exponent <= 0xfd;
  if (channel % 2 != 0 && has_next && (bits & 0x1fffu) != 0) return bits_to_float(bits + 1);
#endif
  return value;
}

// Both parts of such a filter, rounded.
CONVX_DEVICE void part_filter(float value, int channel, uint32_t& high, uint32_t& low) {
  const float whole = against_dropped_digits(value, channel);
  high = round_to_tf32(whole);
  low = round_to_tf32(whole - bits_to_float(high));
}

// The lower, or where odd the upper, halves of two words, low first.
CONVX_DEVICE uint32_t pair_halves(uint32_t low, uint32_t high, bool odd) {
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__)
  return __byte_perm(low, high, odd ? 0x7632 : 0x5410);
#else
  return odd ? (low >> 16) | (high & 0xffff0000u) : (low & 0xffffu) | (high << 16);
#endif
}

#if defined(CONVX_SIMT)
namespace detail {
// On values, so that there is nothing for the sanitizers to see: they would take most of the time.
template <class T>
__attribute__((no_sanitize("address"))) inline float half_of(uint32_t word, int i) {
  if constexpr (std::is_same<T, bfloat16>::value) {
    return __builtin_bit_cast(float, i == 0 ? word << 16 : word & 0xffff0000u);
  } else {
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(word >> 16 * i)));
  }
}
template <class T>
__attribute__((no_sanitize("address"))) inline float word_product(uint32_t a, uint32_t b, float sum) {
  if constexpr (std::is_same<T, tf32>::value) {
    // Units read no more than these bits.
    return __builtin_fmaf(__builtin_bit_cast(float, a & ~0x1fffu), __builtin_bit_cast(float, b & ~0x1fffu),
                          sum);
  } else {
    sum = __builtin_fmaf(half_of<T>(a, 0), half_of<T>(b, 0), sum);
    return __builtin_fmaf(half_of<T>(a, 1), half_of<T>(b, 1), sum);
  }
}

// What a lane gives to the others, and its sums: values both.
template <int Lanes>
struct Words {
  uint32_t a[Fragment<Lanes>::kWordsA], b[2];
};
struct Sums {
  float at[4];
};
template <class T, int Lanes>
__attribute__((no_sanitize("address"))) Sums multiply_given(const simt::Given<Lanes, Words<Lanes>> given,
                                                            Sums sums) {
  const int lane = threadIdx.x % Lanes;
  for (int slot = 0; slot < 4; ++slot) {
    if constexpr (Lanes == 32) {
      const Words<Lanes> rows = given.from(lane / 4 * 4 + slot);
      for (int j = 0; j < 2; ++j) {
        const Words<Lanes> column = given.from((2 * (lane % 4) + j) * 4 + slot);
        for (int word = 0; word < 4; ++word) {
          float& target = sums.at[2 * (word & 1) + j];
          target = word_product<T>(rows.a[word], column.b[word >> 1], target);
        }
      }
    } else {
      const Words<Lanes> column = given.from(slot * 16 + lane % 16);
      for (int i = 0; i < 4; ++i) {
        const Words<Lanes> row = given.from(slot * 16 + lane / 16 * 4 + i);
        for (int word = 0; word < 2; ++word) {
          sums.at[i] = word_product<T>(row.a[word], column.b[word], sums.at[i]);
        }
      }
    }
  }
  return sums;
}
}  // namespace detail
#elif defined(CONVX_MFMA)
namespace detail {
using Words = __attribute__((ext_vector_type(2))) uint32_t;
using Sums = __attribute__((ext_vector_type(4))) float;
using Shorts = __attribute__((ext_vector_type(4))) short;
using Halves = __attribute__((ext_vector_type(4))) _Float16;
}  // namespace detail
#endif

// T is bfloat16, float16 or tf32. All lanes of the warp take part.
template <int Lanes, class T>
CONVX_DEVICE void multiply_fragments(float (&sum)[4], const uint32_t (&a)[Fragment<Lanes>::kWordsA],
                                     uint32_t b0, uint32_t b1) {
#if defined(CONVX_SIMT)
  detail::Words<Lanes> own;
  if constexpr (Lanes == 32) {
    own = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  } else {
    own = {{a[0], a[1]}, {b0, b1}};
  }
  const detail::Sums sums = detail::multiply_given<T, Lanes>(simt::Given<Lanes, detail::Words<Lanes>>(own),
                                                             {sum[0], sum[1], sum[2], sum[3]});
  sum[0] = sums.at[0], sum[1] = sums.at[1], sum[2] = sums.at[2], sum[3] = sums.at[3];
#elif defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same<T, tf32>::value) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else if constexpr (std::is_same<T, bfloat16>::value) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif defined(CONVX_MFMA)
  detail::Sums sums = {sum[0], sum[1], sum[2], sum[3]};
  if constexpr (std::is_same<T, tf32>::value) {
    sums = __builtin_amdgcn_mfma_f32_16x16x4f32(bits_to_float(a[0]), bits_to_float(b0), sums, 0, 0, 0);
    sums = __builtin_amdgcn_mfma_f32_16x16x4f32(bits_to_float(a[1]), bits_to_float(b1), sums, 0, 0, 0);
  } else {
    const detail::Words words_a = {a[0], a[1]}, words_b = {b0, b1};
    if constexpr (std::is_same<T, bfloat16>::value) {
      sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(detail::Shorts, words_a),
                                                       __builtin_bit_cast(detail::Shorts, words_b), sums, 0,
                                                       0, 0);
    } else {
      sums =
          __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(detail::Halves, words_a),
                                                __builtin_bit_cast(detail::Halves, words_b), sums, 0, 0, 0);
    }
  }
  CONVX_UNROLL
  for (int i = 0; i < 4; ++i) sum[i] = sums[i];
#endif
}

// Of half the depth: a's words of the second half and b's count as zero.
template <int Lanes, class T>
CONVX_DEVICE void multiply_half_fragments(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  static_assert(Lanes == 32, "a's words");
#if defined(CONVX_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same<T, bfloat16>::value) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(b));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
#else
  multiply_fragments<Lanes, T>(sum, {a0, a1, 0, 0}, b, 0);
#endif
}

}  // namespace convx
