// Elements kept as the 32-bit words they were loaded in, one or two to a word, until they are used.
#pragma once
#include <type_traits>

#include "platform/gpu/platform.h"

namespace convx::depthwise {

template <class T>
constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));

template <class T>
CONVX_DEVICE float unpack(uint32_t word, int index) {
  if constexpr (sizeof(T) == 4) {
    return bits_to_float(word);
  } else if constexpr (std::is_same<T, bfloat16>::value) {
    return bits_to_float(index == 0 ? word << 16 : word & 0xffff0000u);
  } else {
    return widen(T{static_cast<uint16_t>(index == 0 ? word : word >> 16)});
  }
}

template <int Words>
struct Packed {
  uint32_t word[Words];
  template <class T>
  CONVX_DEVICE float get(int element) const {
    return unpack<T>(word[element / kPerWord<T>], element % kPerWord<T>);
  }
};

template <int Words, class T>
CONVX_DEVICE Packed<Words> load_packed(const T* address) {
  const Vector<uint32_t, Words> vector = load<uint32_t, Words>(reinterpret_cast<const uint32_t*>(address));
  Packed<Words> packed;
  CONVX_UNROLL
  for (int i = 0; i < Words; ++i) packed.word[i] = vector.element[i];
  return packed;
}

// Element i where bit i of mask is set, zero elsewhere; nothing else is read.
template <int Words, class T>
CONVX_DEVICE Packed<Words> load_packed(const T* address, uint32_t mask) {
  Packed<Words> packed{};
  CONVX_UNROLL
  for (int i = 0; i < Words * kPerWord<T>; ++i) {
    if ((mask >> i & 1u) == 0) continue;
    if constexpr (sizeof(T) == 4) {
      packed.word[i] = load_packed<1>(address + i).word[0];
    } else {
      packed.word[i / 2] |= static_cast<uint32_t>(load<T, 1>(address + i).element[0].bits) << (i % 2 * 16);
    }
  }
  return packed;
}

}  // namespace convx::depthwise
