// Memory that kernels take for themselves, and what happens where there is none left.
#pragma once
#include <cstdint>
#include <stdexcept>

namespace convx {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory of one thread of a kernel, at a multiple of 64 bytes; release with std::free. Throws OutOfMemory,
// which says how much was asked for.
void* allocate_scratch(int64_t bytes);

}  // namespace convx
