// What kernels may take of a machine's memory beside their operands, and what happens where there is none
// left.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace convx {

// Bytes that a call's temporaries may take: the environment variable CONVX_WORKSPACE_LIMIT_MB, read once, or
// the 1 GB of cuConv's paper. Throws InvalidArgument where the variable is no whole number of megabytes.
int64_t workspace_limit();

std::string megabytes(double bytes);  // rounded up, without a unit

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Memory of one thread of a kernel, at a multiple of 64 bytes; release with std::free. Throws OutOfMemory,
// which says how much was asked for.
void* allocate_scratch(int64_t bytes);

}  // namespace convx
