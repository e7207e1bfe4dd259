// Operands of the drivers that bring their own reference.
#pragma once
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "platform/gpu/platform.h"

namespace simt_test {

// Memory of exactly the elements asked for, aligned as torch's, filled with NaN.
template <class T>
struct Buffer {
  explicit Buffer(int64_t count)
      : data(static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(256)))) {
    std::memset(static_cast<void*>(data), 0xFF, count * sizeof(T));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete(data, std::align_val_t(256)); }
  T* data;
};

// Small integers, which all types hold.
template <class T>
struct Operand {
  Operand(int64_t count, uint64_t seed, int most) : memory(count), values(count) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      set(i, static_cast<int>((state >> 33) % (2 * most + 1)) - most);
    }
  }
  void set(int64_t place, double value) {
    values[place] = value;
    memory.data[place] = convx::narrow<T>(static_cast<float>(value));
  }
  Buffer<T> memory;
  std::vector<double> values;
};

}  // namespace simt_test
