// What becomes of sums.
#pragma once
#include "methods/inverted_residual/activations.cuh"
#include "methods/inverted_residual/fragments.cuh"

namespace convx::inverted_residual {

// Four channels of a result. residual: the source's, read where it is added; there is no activation then.
template <class Arguments, class T>
CONVX_DEVICE void store_four(const Arguments& a, const Bound<T>& bound, PairSums sums, int half,
                             const T* residual, T* to) {
  if (a.has_residual) {
    const auto four = *reinterpret_cast<const Vector<T, 4>*>(residual);
    CONVX_UNROLL
    for (int k = 0; k < 4; ++k) sums.at(half, k) += widen(four.element[k]);
  }
  Vector<uint32_t, 2> words;
  CONVX_UNROLL
  for (int k = 0; k < 2; ++k) {
    const float low = sums.at(half, 2 * k), high = sums.at(half, 2 * k + 1);
    words.element[k] = a.output_activation == Activation::none
                           ? narrow_pair<T>(low, high)
                           : activated_pair<T, Inside::relu>(low, high, bound.high);
  }
  store_whole<uint32_t, 2>(reinterpret_cast<uint32_t*>(to), words);
}

}  // namespace convx::inverted_residual
