// Torch's own operators, called through its dispatcher.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>

namespace convx {

using torch::stable::detail::from;
using torch::stable::detail::to;
using Pair = std::array<int64_t, 2>;

// stack holds the arguments, and the results afterwards.
inline void call(const char* name, const char* overload, StableIValue* stack) {
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, overload, stack, TORCH_ABI_VERSION));
}

inline StableIValue list(const Pair& values) {
  return from(torch::headeronly::IntHeaderOnlyArrayRef(values.data(), values.size()));
}

}  // namespace convx
