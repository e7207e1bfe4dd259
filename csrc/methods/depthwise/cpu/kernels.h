// The kernels of one instruction set and the choice between them. Included last by each cpu_*.cpp.
#pragma once
#include "methods/depthwise/cpu/blocked.h"
#include "methods/depthwise/cpu/channels_general.h"
#include "methods/depthwise/cpu/planes_general.h"
#include "methods/depthwise/cpu/planes_reuse.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {

// Runs a kernel's tasks in the caller's threads; less than some ten microseconds of work stays in this one.
template <class Kernel>
void run_tasks(const Job& job, const ThreadPool& pool) {
  const Kernel kernel{job};
  const int64_t tasks = kernel.tasks();
  const int64_t filter_taps = job.filter_height * job.filter_width;
  const double pixels = static_cast<double>(job.batch) * static_cast<double>(job.channels * job.multiplier) *
                        static_cast<double>(job.target_height * job.target_width);
  const bool tiny = pixels * static_cast<double>(filter_taps) < 65536.0;
  if (tiny || pool.threads <= 1 || tasks <= 1) {
    kernel.run(0, tasks);
    return;
  }
  pool.parallel_for(tasks, ceil_divide(tasks, pool.threads),
                    [&kernel](int64_t begin, int64_t end) { kernel.run(begin, end); });
}

// The slices' sums, in order.
template <class T>
void sum_slices(const Job& job) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  const int64_t elements = job.channels * job.multiplier * job.filter_height * job.filter_width;
  const A* partial = static_cast<const A*>(job.workspace);
  T* result = static_cast<T*>(job.result);
  int64_t i = 0;
  for (; i + L <= elements; i += L) {
    Simd<A, L> sum = load<L>(partial + i);
    for (int64_t slice = 1; slice < job.slices; ++slice) sum += load<L>(partial + slice * elements + i);
    store<L>(result + i, sum);
  }
  for (; i < elements; ++i) {
    A sum = partial[i];
    for (int64_t slice = 1; slice < job.slices; ++slice) sum += partial[slice * elements + i];
    store_one(result + i, sum);
  }
}

// NCHW with lanes along columns, float alone: the 16-bit formats go through blocks or the general path.
template <int Filter, int Stride>
void run_columns(const Job& job, const ThreadPool& pool) {
  constexpr int L = kLanes<float>;
  constexpr int kHalf = L == 16 ? 8 : L;  // for rows that fill half a vector at most
  const bool narrow = kHalf != L && job.target_width <= kHalf;
  if (job.operation == Operation::weight_grad) {
    if (narrow)
      return run_tasks<PlaneWeight<float, PlaneWeightRows<float, Filter, Stride, kHalf>>>(job, pool);
    return run_tasks<PlaneWeight<float, PlaneWeightRows<float, Filter, Stride, L>>>(job, pool);
  }
  if constexpr (Stride == 2) {
    if (job.transposed) return run_tasks<PlaneRowsTransposed<float, Filter, L>>(job, pool);
  }
  if (narrow) return run_tasks<PlaneRows<float, Filter, Stride, kHalf>>(job, pool);
  return run_tasks<PlaneRows<float, Filter, Stride, L>>(job, pool);
}

// channels_last straight from memory; the 16-bit formats only where that is a large part of the work and the
// conversion is cheap, since each instance costs seconds to compile.
template <class T, int Filter, int Stride>
void run_channels(const Job& job, const ThreadPool& pool) {
  if constexpr (sizeof(T) == 4) {
    if (job.operation == Operation::weight_grad) {
      return run_tasks<ChannelWeight<T, ChannelWeightRows<T, Filter, Stride>>>(job, pool);
    }
    if constexpr (Stride == 2) {
      if (job.transposed) return run_tasks<ChannelRows<T, Filter, Stride, true>>(job, pool);
    }
  }
  if constexpr (sizeof(T) == 4 || CONVX_SIMD_BYTES > 16) {
    run_tasks<ChannelRows<T, Filter, Stride, false>>(job, pool);
  }
}

template <class T, int Filter, int Stride>
void run_fast(const Job& job, const ThreadPool& pool) {
  if (job.algorithm == Algorithm::rows) {
    if (job.channels_last) return run_channels<T, Filter, Stride>(job, pool);
    if constexpr (sizeof(T) == 4) return run_columns<Filter, Stride>(job, pool);
  }
#if CONVX_SIMD_BYTES >= 32
  if constexpr (Stride == 1 && sizeof(T) == 4) {
    if (job.algorithm == Algorithm::reuse) {
      // Rows of half a vector at most in vectors of that width.
      if (job.target_width <= 8) return run_tasks<PlaneReuse<Filter, 8>>(job, pool);
      return run_tasks<PlaneReuse<Filter, kLanes<T>>>(job, pool);
    }
  }
#endif
  if (job.operation == Operation::weight_grad) return run_tasks<BlockedWeight<T, Filter, Stride>>(job, pool);
  if constexpr (Stride == 2) {
    if (job.transposed) return run_tasks<BlockedRows<T, Filter, Stride, true>>(job, pool);
  }
  run_tasks<BlockedRows<T, Filter, Stride, false>>(job, pool);
}

template <class T>
void run_general(const Job& job, const ThreadPool& pool) {
  const bool lanes_along_channels =
      job.channels_last && job.multiplier == 1 && job.channels >= kLanes<Accumulator<T>>;
  if (job.operation == Operation::weight_grad) {
    if (lanes_along_channels) return run_tasks<ChannelWeight<T, ChannelWeightGeneral<T>>>(job, pool);
    return run_tasks<PlaneWeight<T, PlaneWeightGeneral<T>>>(job, pool);
  }
  if (lanes_along_channels) return run_tasks<ChannelGeneral<T>>(job, pool);
  return run_tasks<PlaneGeneral<T>>(job, pool);
}

template <class T>
void run_typed(const Job& job, const ThreadPool& pool) {
  if constexpr (sizeof(T) < 8) {
    if (job.algorithm == Algorithm::general) {
      run_general<T>(job, pool);
    } else if (job.filter_height == 3) {
      job.stride_h == 1 ? run_fast<T, 3, 1>(job, pool) : run_fast<T, 3, 2>(job, pool);
    } else if (job.filter_height == 5) {
      job.stride_h == 1 ? run_fast<T, 5, 1>(job, pool) : run_fast<T, 5, 2>(job, pool);
    } else {
      run_fast<T, 7, 1>(job, pool);
    }
  } else {
    run_general<T>(job, pool);
  }
  if (job.operation == Operation::weight_grad && job.slices > 1) sum_slices<T>(job);
}

void run(const Job& job, const ThreadPool& pool) {
  with_element(job.dtype, [&](auto element) { run_typed<decltype(element)>(job, pool); });
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
