// Pieces of an operand on their way to shared memory.
#pragma once
#include "platform/gpu/async_copy.h"

namespace convx::pointwise {

// Count neighbouring elements, zeros where valid is false. Two bytes are too few for an asynchronous copy:
// they are there when the call returns.
template <int Count, class T>
CONVX_DEVICE void copy_elements(T* shared, const T* global, bool valid) {
  constexpr int kBytes = Count * static_cast<int>(sizeof(T));
  if constexpr (kBytes >= 4) {
    copy_async<kBytes>(shared, global, valid ? kBytes : 0);
  } else {
    T element = {};
    if (valid) element = *global;
    *shared = element;
  }
}

}  // namespace convx::pointwise
