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

template <int Value>
struct Step {
  CONVX_DEVICE constexpr operator int() const { return Value; }
};
template <class Body, int... Steps>
CONVX_DEVICE void unrolled_steps(const Body& body, std::integer_sequence<int, Steps...>) {
  (body(Step<Steps>()), ...);
}
}  // namespace detail

// body(std::integral_constant<int, i>()) for i from 0 to N - 1. For long bodies that index register arrays,
// which a loop left rolled would push into memory.
template <int N, class Body>
CONVX_DEVICE void unrolled(const Body& body) {
  detail::unrolled(body, std::make_integer_sequence<int, N>());
}

// The same for bodies that take the index as a plain int: the host executor, which gains nothing from
// unrolling, runs them in a loop and compiles them in a fraction of the time.
template <int N, class Body>
CONVX_DEVICE void unrolled_steps(const Body& body) {
#if defined(CONVX_SIMT)
  for (int step = 0; step < N; ++step) body(step);
#else
  detail::unrolled_steps(body, std::make_integer_sequence<int, N>());
#endif
}

}  // namespace convx
