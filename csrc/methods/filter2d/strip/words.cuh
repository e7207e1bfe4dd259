// A lane's strip of a row: 32-bit words in registers and shuffles, whose pixels become floats where used.
#pragma once
#include "methods/filter2d/pixel.cuh"
#include "platform/gpu/opaque.h"
#include "platform/gpu/pack.h"

namespace convx::filter2d::strip {

template <class T, int Columns>
struct Words {
  static constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  static constexpr int kCount = Columns / kPerWord;
  uint32_t word[kCount];
};

// Pixel `place` of a word.
template <class T>
CONVX_DEVICE float pixel_of(uint32_t word, int place) {
  if constexpr (sizeof(T) == 4) {
    return bits_to_float(word);
  } else if constexpr (sizeof(T) == 2) {
    return widen(T{static_cast<uint16_t>(place != 0 ? word >> 16 : word & 0xffffu)});
  } else {
    return static_cast<float>((word >> (8 * place)) & 0xffu);
  }
}

// The element's own bits, for a word that is put together from elements.
template <class T>
CONVX_DEVICE uint32_t element_bits(const T* address) {
  if constexpr (sizeof(T) == 4) {
    return float_to_bits(load<T, 1>(address).element[0]);
  } else if constexpr (sizeof(T) == 2) {
    return load<T, 1>(address).element[0].bits;
  } else {
    return *address;
  }
}

template <class T, int Columns>
CONVX_DEVICE Words<T, Columns> load_strip(const T* from) {
  Words<T, Columns> strip;
  constexpr int kCount = Words<T, Columns>::kCount;
  const Vector<uint32_t, kCount> loaded = load<uint32_t, kCount>(reinterpret_cast<const uint32_t*>(from));
  CONVX_UNROLL
  for (int i = 0; i < kCount; ++i) strip.word[i] = loaded.element[i];
  return strip;
}

// Element j from `from` + offset[j]; a negative offset is a zero.
template <class T, int Columns>
CONVX_DEVICE Words<T, Columns> gather_strip(const T* from, const int (&offset)[Columns]) {
  using Strip = Words<T, Columns>;
  Strip strip;
  CONVX_UNROLL
  for (int i = 0; i < Strip::kCount; ++i) {
    strip.word[i] = 0;
    CONVX_UNROLL
    for (int j = 0; j < Strip::kPerWord; ++j) {
      const int place = offset[i * Strip::kPerWord + j];
      if (place >= 0) strip.word[i] |= element_bits(from + place) << (8 * sizeof(T) * j);
    }
  }
  return strip;
}

// Element by element, from memory of any alignment.
template <class T, int Columns>
CONVX_DEVICE Words<T, Columns> load_ragged_strip(const T* from) {
  using Strip = Words<T, Columns>;
  Strip strip;
  CONVX_UNROLL
  for (int i = 0; i < Strip::kCount; ++i) {
    strip.word[i] = 0;
    CONVX_UNROLL
    for (int j = 0; j < Strip::kPerWord; ++j) {
      strip.word[i] |= element_bits(from + i * Strip::kPerWord + j) << (8 * sizeof(T) * j);
    }
  }
  return strip;
}

// window[j] = pixel j - Left of the lane's strip, from the neighbour lanes where it is not the lane's own.
template <int Lanes, class T, int Columns, int Left, int Right>
CONVX_DEVICE void exchange(const Words<T, Columns>& own, int lane, float (&window)[Left + Columns + Right]) {
  constexpr int kPerWord = Words<T, Columns>::kPerWord, kCount = Words<T, Columns>::kCount;
  constexpr int kLeftWords = (Left + kPerWord - 1) / kPerWord;
  constexpr int kRightWords = (Right + kPerWord - 1) / kPerWord;
  static_assert(kLeftWords <= kCount && kRightWords <= kCount, "halo columns come from the next lane alone");
  uint32_t word[kLeftWords + kCount + kRightWords];
  CONVX_UNROLL
  for (int i = 0; i < kLeftWords; ++i) {
    word[i] = shuffle<Lanes>(own.word[kCount - kLeftWords + i], (lane + Lanes - 1) % Lanes);
  }
  CONVX_UNROLL
  for (int i = 0; i < kCount; ++i) word[kLeftWords + i] = own.word[i];
  CONVX_UNROLL
  for (int i = 0; i < kRightWords; ++i) {
    word[kLeftWords + kCount + i] = shuffle<Lanes>(own.word[i], (lane + 1) % Lanes);
  }
  CONVX_UNROLL
  for (int j = 0; j < Left + Columns + Right; ++j) {
    const int place = j - Left + kLeftWords * kPerWord;
    window[j] = pixel_of<T>(word[place / kPerWord], place % kPerWord);
  }
}

// The first `count` of a row's results, where they lie in any alignment.
template <class T, int Columns>
CONVX_DEVICE void store_ragged(T* to, const float (&result)[Columns], int count) {
  CONVX_UNROLL
  for (int j = 0; j < Columns; ++j) {
    if (j < count) write_pixel<T>(to + j, result[j]);
  }
}

// A whole strip of results, aligned.
template <class T, int Columns>
CONVX_DEVICE void store_strip(T* to, const float (&result)[Columns]) {
  constexpr int kPerWord = Words<T, Columns>::kPerWord, kCount = Words<T, Columns>::kCount;
  Vector<uint32_t, kCount> packed;
  CONVX_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kPerWord == 1) {
      packed.element[i] = float_to_bits(result[i]);
    } else if constexpr (kPerWord == 2) {
      packed.element[i] = narrow_pair<T>(result[2 * i], result[2 * i + 1]);
    } else {
      packed.element[i] = saturated_byte(result[4 * i]) | saturated_byte(result[4 * i + 1]) << 8 |
                          saturated_byte(result[4 * i + 2]) << 16 | saturated_byte(result[4 * i + 3]) << 24;
    }
  }
  store<uint32_t, kCount>(reinterpret_cast<uint32_t*>(to), packed);
}

}  // namespace convx::filter2d::strip
