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
  const float values[4] = {sums.at(half, 0), sums.at(half, 1), sums.at(half, 2), sums.at(half, 3)};
  constexpr int kWords = sizeof(T);
  const Vector<uint32_t, kWords> words = a.output_activation == Activation::none
                                             ? rounded_words<T>(values)
                                             : activated_words<T, Inside::relu>(values, bound);
  store_whole<uint32_t, kWords>(reinterpret_cast<uint32_t*>(to), words);
}

}  // namespace convx::inverted_residual
