// Loads and stores of several neighbouring elements by one instruction.
#pragma once
#include "platform/gpu/numeric.h"

namespace convx {

// N elements in one aligned piece of memory; N * sizeof(T) is 1, 2, 4, 8 or 16 bytes for one instruction,
// a multiple of 16 for several.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  T element[N];
};

#if defined(CONVX_SIMT)
template <class T, int N>
CONVX_DEVICE Vector<T, N> load(const T* address) {
  return *reinterpret_cast<const Vector<T, N>*>(address);
}
template <class T, int N>
CONVX_DEVICE void store(T* address, const Vector<T, N>& value) {
  *reinterpret_cast<Vector<T, N>*>(address) = value;
}
#else
namespace detail {
template <int Bytes>
struct Word;
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned int;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};
template <int Bytes>
constexpr int word_bytes = Bytes < 16 ? Bytes : 16;
}  // namespace detail

// Read-only data, through the read-only path where there is one. address is aligned to the vector.
template <class T, int N>
CONVX_DEVICE Vector<T, N> load(const T* address) {
  using Word = typename detail::Word<detail::word_bytes<sizeof(T) * N> >::type;
  constexpr int kWords = sizeof(T) * N / sizeof(Word);
  union {
    Vector<T, N> vector;
    Word word[kWords];
  } value;
  CONVX_UNROLL
  for (int i = 0; i < kWords; ++i) {
#if defined(CONVX_CUDA)
    value.word[i] = __ldg(reinterpret_cast<const Word*>(address) + i);
#else
    value.word[i] = reinterpret_cast<const Word*>(address)[i];
#endif
  }
  return value.vector;
}

template <class T, int N>
CONVX_DEVICE void store(T* address, const Vector<T, N>& source) {
  using Word = typename detail::Word<detail::word_bytes<sizeof(T) * N> >::type;
  constexpr int kWords = sizeof(T) * N / sizeof(Word);
#if defined(CONVX_HIP)
  // Pairs are packed by hand: clang keeps a union of many 16-bit elements and wide words in memory.
  if constexpr (sizeof(T) == 2 && N >= 2) {
    constexpr int kPairs = sizeof(Word) / 4;
    CONVX_UNROLL
    for (int i = 0; i < kWords; ++i) {
      unsigned int pair[kPairs];
      CONVX_UNROLL
      for (int j = 0; j < kPairs; ++j) {
        const int first = 2 * (i * kPairs + j);
        pair[j] = source.element[first].bits | static_cast<unsigned int>(source.element[first + 1].bits)
                                                   << 16;
      }
      Word* const to = reinterpret_cast<Word*>(address) + i;
      if constexpr (kPairs == 1) {
        *to = pair[0];
      } else if constexpr (kPairs == 2) {
        *to = make_uint2(pair[0], pair[1]);
      } else {
        *to = make_uint4(pair[0], pair[1], pair[2], pair[3]);
      }
    }
    return;
  }
#endif
  union {
    Vector<T, N> vector;
    Word word[kWords];
  } value;
  value.vector = source;
  CONVX_UNROLL
  for (int i = 0; i < kWords; ++i) reinterpret_cast<Word*>(address)[i] = value.word[i];
}
#endif

// As store, of 8 or 16 bytes to global memory, by one instruction for certain: among conditional stores nvcc
// takes wide ones apart into words of 4 bytes, each of which fills part of a sector.
template <class T, int N>
CONVX_DEVICE void store_whole(T* address, const Vector<T, N>& source) {
#if defined(CONVX_CUDA)
  static_assert(sizeof(T) * N == 8 || sizeof(T) * N == 16, "two or four words");
  union {
    Vector<T, N> vector;
    uint32_t word[sizeof(T) * N / 4];
  } value;
  value.vector = source;
  const size_t global = __cvta_generic_to_global(address);
  if constexpr (sizeof(T) * N == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(global), "r"(value.word[0]), "r"(value.word[1])
                 : "memory");
  } else {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(global), "r"(value.word[0]),
                 "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
                 : "memory");
  }
#else
  store<T, N>(address, source);
#endif
}

}  // namespace convx
