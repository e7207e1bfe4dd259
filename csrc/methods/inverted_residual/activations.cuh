// Activations of values that are rounded to 16 bits. Which one it is is known to the compiler: kernels hold
// many copies of its code, and have to fit into the instruction cache.
#pragma once
#include "methods/activate.cuh"
#include "methods/inverted_residual/shape.h"

namespace convx::inverted_residual {

// What relu and relu6 differ in; exact in 16 bits.
template <class T>
struct Bound {
  uint32_t high;  // twice

  CONVX_DEVICE explicit Bound(Activation activation) {
    const float most = activation == Activation::relu6 ? 6.0f : bits_to_float(0x7f800000u);
    high = narrow_pair<T>(most, most);
  }
};

// high: of a Bound; of relu and relu6 alone.
template <class T, Inside kInside>
CONVX_DEVICE uint32_t activated_pair(float x, float y, uint32_t high) {
  if constexpr (kInside == Inside::relu) {
    return least_pair_keeping_nan<T>(narrow_pair_of_relu<T>(x, y), high);
  } else if constexpr (kInside == Inside::silu) {
    return narrow_pair<T>(silu<T>(x), silu<T>(y));
  } else {
    return narrow_pair<T>(hardswish<T>(x), hardswish<T>(y));
  }
}

}  // namespace convx::inverted_residual
