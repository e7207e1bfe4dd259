// Gates of channels, of vectors of accumulators.
#pragma once
#include "methods/epilogue_cpu.h"
#include "problem/excite_problem.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

template <class A, int L>
CONVX_INLINE Simd<A, L> gate_of(Simd<A, L> value, Gate gate) {
  using V = Simd<A, L>;
  if (gate == Gate::hardsigmoid) {
    const V zero = {}, six = broadcast<V>(A(6));
    value += A(3);
    return at_most(at_least(value, zero), six) / A(6);
  }
  if constexpr (sizeof(A) == 4) {
    return logistic<L>(value);
  } else {
    for (int lane = 0; lane < L; ++lane) value[lane] = A(1) / (A(1) + std::exp(-value[lane]));
    return value;
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
