// Sizes that are fixed when kernels are compiled.
#pragma once
#include <type_traits>

#include "problem/block_problem.h"

namespace convx::inverted_residual {

inline int number(int64_t value) {
  return static_cast<int>(value);
}

// run(filter, stride), whose types have the values.
template <class Run>
void with_sizes(const BlockProblem& p, const Run& run) {
  const auto with_filter = [&](auto filter) {
    p.stride == 1 ? run(filter, std::integral_constant<int, 1>())
                  : run(filter, std::integral_constant<int, 2>());
  };
  p.filter == 3 ? with_filter(std::integral_constant<int, 3>())
                : with_filter(std::integral_constant<int, 5>());
}

}  // namespace convx::inverted_residual
