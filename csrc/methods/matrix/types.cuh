// The element types of a precision, and the warp widths that have matrix units.
#pragma once
#include "methods/matrix/precision.h"
#include "platform/gpu/launch.h"
#include "platform/gpu/mma.h"

namespace convx::matrix {

template <Precision Kind>
struct Types {
  using Element = float;
  using Product = tf32;
};
template <>
struct Types<kBfloat16> {
  using Element = bfloat16;
  using Product = bfloat16;
};
template <>
struct Types<kFloat16> {
  using Element = float16;
  using Product = float16;
};

// 32 lanes on CUDA, 64 on HIP, both on the host executor.
template <class Body>
void with_matrix_lanes(int64_t lanes, const Body& body) {
#if defined(CONVX_SIMT)
  with_lanes(lanes, body);
#elif defined(CONVX_CUDA)
  (void)lanes;
  body(std::integral_constant<int, 32>());
#else
  (void)lanes;
  body(std::integral_constant<int, 64>());
#endif
}

}  // namespace convx::matrix
