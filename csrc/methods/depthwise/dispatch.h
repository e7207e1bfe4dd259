// From what is known of a problem at run time to the compile-time choices that kernels are made for.
#pragma once
#include <stdexcept>
#include <type_traits>

#include "problem/problem.h"

namespace convx {
struct float16;
struct bfloat16;
}  // namespace convx

namespace convx::depthwise {

template <class T>
struct Element {
  using type = T;
};

// Calls body(Element<T>()) for the dtypes that the fast families have: all but float64.
template <class Body>
void with_element(const ConvProblem& problem, const Body& body) {
  switch (problem.dtype) {
    case DType::float32:
      return body(Element<float>());
    case DType::float16:
      return body(Element<float16>());
    case DType::bfloat16:
      return body(Element<bfloat16>());
    case DType::float64:
      break;
  }
  throw std::logic_error("convx: no depthwise kernel for " + describe(problem));
}

// Calls body(std::integral_constant<int, Filter>()) for a square filter of side 3, 5 or 7.
template <class Body>
void with_filter(const ConvProblem& problem, const Body& body) {
  switch (problem.filter_height) {
    case 3:
      return body(std::integral_constant<int, 3>());
    case 5:
      return body(std::integral_constant<int, 5>());
    case 7:
      return body(std::integral_constant<int, 7>());
  }
  throw std::logic_error("convx: no depthwise kernel for " + describe(problem));
}

// The same with the stride, 1 or 2 in both directions, as a second argument.
template <class Body>
void with_filter_and_stride(const ConvProblem& problem, const Body& body) {
  with_filter(problem, [&](auto filter) {
    if (problem.stride_h == 1) {
      body(filter, std::integral_constant<int, 1>());
    } else {
      body(filter, std::integral_constant<int, 2>());
    }
  });
}

}  // namespace convx::depthwise
