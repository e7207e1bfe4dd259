// Unrolling that no compiler's size limit stops: each step is its own instantiation, with a constant index.
#pragma once
#include <type_traits>
#include <utility>

namespace convx {
namespace detail {
template <class Body, int... Steps>
CONVX_DEVICE void unrolled(const Body& body, std::integer_sequence<int, Steps...>) {
  (body(std::integral_constant<int, Steps>()), ...);
}
}  // namespace detail

// body(std::integral_constant<int, i>()) for i from 0 to N - 1. For long bodies that index register arrays,
// which a loop left rolled would push into memory.
template <int N, class Body>
CONVX_DEVICE void unrolled(const Body& body) {
  detail::unrolled(body, std::make_integer_sequence<int, N>());
}

}  // namespace convx
