// What kernels may take of a machine's memory beside their operands.
#pragma once
#include <cstdint>
#include <string>

namespace convx {

// Bytes that a call's temporaries may take: the environment variable CONVX_WORKSPACE_LIMIT_MB, read once, or
// the 1 GB of cuConv's paper. Throws InvalidArgument where the variable is no whole number of megabytes.
int64_t workspace_limit();

std::string megabytes(double bytes);  // rounded up, without a unit

}  // namespace convx
