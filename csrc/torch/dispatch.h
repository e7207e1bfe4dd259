// Torch's own operators, called through its dispatcher.
#pragma once
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <utility>

#include "problem/problem.h"

namespace convx {

using torch::headeronly::HeaderOnlyArrayRef;
using torch::headeronly::IntHeaderOnlyArrayRef;
using torch::headeronly::MemoryFormat;
using torch::stable::Tensor;
using Pair = std::array<int64_t, 2>;

inline IntHeaderOnlyArrayRef list(const Pair& values) {
  return {values.data(), values.size()};
}
inline MemoryFormat memory_format(Layout layout) {
  return layout == Layout::nhwc ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
}

namespace dispatch {

template <size_t... Index>
std::array<Tensor, sizeof...(Index)> take(const StableIValue* stack, std::index_sequence<Index...>) {
  return {torch::stable::detail::to<Tensor>(stack[Index])...};
}

}  // namespace dispatch

// The tensors that an operator of torch's returns, all of them, in order. What lies on the stack afterwards
// are references that nobody else releases, also those of operators that return an argument, as out= forms
// do.
template <size_t Results, class... Arguments>
std::array<Tensor, Results> call_for(const char* name, const char* overload, const Arguments&... arguments) {
  StableIValue stack[std::max(Results, sizeof...(Arguments))] = {torch::stable::detail::from(arguments)...};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, overload, stack, TORCH_ABI_VERSION));
  return dispatch::take(stack, std::make_index_sequence<Results>());
}

// The same of an operator that returns one tensor.
template <class... Arguments>
Tensor call(const char* name, const char* overload, const Arguments&... arguments) {
  return std::move(call_for<1>(name, overload, arguments...)[0]);
}

}  // namespace convx
