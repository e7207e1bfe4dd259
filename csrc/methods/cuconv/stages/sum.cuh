// Stage 2 (sum): adds the planes of partial sums in their order; neighbouring threads take neighbouring
// results.
#pragma once
#include "methods/epilogue.cuh"
#include "platform/gpu/overlap.h"
#include "platform/gpu/platform.h"

namespace convx::cuconv::stages {

constexpr int kSumThreads = 256;
constexpr int kPlanesAhead = 8;  // loads that a thread has under way

template <class T>
CONVX_KERNEL(kSumThreads, 1)
sum_kernel(const Accumulator<T>* partial, const T* bias, T* result, int64_t results, int planes,
           int result_plane, int filters, Finishing<T> finishing) {
  using A = Accumulator<T>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (index >= results) return;
  take_turn();
  const A* source = partial + index;
  A sum = A(0);
  int plane = 0;
  for (; plane + kPlanesAhead <= planes; plane += kPlanesAhead, source += kPlanesAhead * results) {
    A ahead[kPlanesAhead];
    CONVX_UNROLL
    for (int i = 0; i < kPlanesAhead; ++i) ahead[i] = source[i * results];
    CONVX_UNROLL
    for (int i = 0; i < kPlanesAhead; ++i) sum += ahead[i];
  }
  for (; plane < planes; ++plane, source += results) sum += *source;
  const int filter =
      bias != nullptr || finishing.more != 0 ? static_cast<int>(index / result_plane % filters) : 0;
  result[index] = finished(sum + bias_of(bias, filter), finishing, filter, result + index);
}

}  // namespace convx::cuconv::stages
