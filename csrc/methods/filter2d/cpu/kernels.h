// The kernels of one instruction set and the choice between them. Included last by each cpu_*.cpp.
#pragma once
#include "methods/filter2d/cpu/kernel.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

template <class Element, int Filter>
Sweeper<Element> fixed_sweeper(const filter2d::Job& job) {
  switch (job.reuse) {
    case filter2d::Reuse::none:
      return sweeper<FixedTile<Element, Filter, 1, false>>(job.problem);
    case filter2d::Reuse::columns:
      return sweeper<FixedTile<Element, Filter, 1, true>>(job.problem);
    case filter2d::Reuse::rows:
      return sweeper<FixedTile<Element, Filter, kTileRows, false>>(job.problem);
    default:
      return sweeper<FixedTile<Element, Filter, kTileRows, true>>(job.problem);
  }
}

template <class A>
Sweeper<A> choose_sweeper(const filter2d::Job& job) {
  if constexpr (sizeof(A) == 4) {
    if (filter2d::has_own_kernel(job.problem)) {
      const int64_t size = job.problem.filter_height;
      return size == 3   ? fixed_sweeper<A, 3>(job)
             : size == 5 ? fixed_sweeper<A, 5>(job)
                         : fixed_sweeper<A, 7>(job);
    }
  }
  return job.reuse == filter2d::Reuse::none ? sweeper<GeneralTile<A, 1>>(job.problem)
                                            : sweeper<GeneralTile<A, kTileRows>>(job.problem);
}

// In the caller's threads; less than some ten microseconds of work stays in this one.
template <class T>
void run_typed(const filter2d::Job& job, const ThreadPool& pool) {
  const Sweeper<Accumulator<T>> sweeper = choose_sweeper<Accumulator<T>>(job);
  const Kernel<T> kernel(job, sweeper);
  const int64_t tasks = kernel.tasks();
  const bool tiny = job.problem.flops() < 131072.0;
  if (tiny || pool.threads <= 1 || tasks <= 1) {
    kernel.run(0, tasks);
    return;
  }
  pool.parallel_for(tasks, ceil_divide(tasks, pool.threads),
                    [&kernel](int64_t begin, int64_t end) { kernel.run(begin, end); });
}

}  // namespace image_filter

void run(const filter2d::Job& job, const ThreadPool& pool) {
  switch (job.problem.dtype) {
    case ImageType::float32:
      return image_filter::run_typed<float>(job, pool);
    case ImageType::float64:
      return image_filter::run_typed<double>(job, pool);
    case ImageType::float16:
      return image_filter::run_typed<Half>(job, pool);
    case ImageType::bfloat16:
      return image_filter::run_typed<Brain>(job, pool);
    case ImageType::uint8:
      return image_filter::run_typed<uint8_t>(job, pool);
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
