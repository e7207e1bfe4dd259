// The kernels of one instruction set and the choice between them. Included last by each cpu_*.cpp.
#pragma once
#include "methods/filter2d/cpu/kernel.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace image_filter {

// In the caller's threads; less than some ten microseconds of work stays in this one.
template <class T, class Tile>
void run_tasks(const filter2d::Job& job, const ThreadPool& pool) {
  const Kernel<T, Tile> kernel(job);
  const int64_t tasks = kernel.tasks();
  const bool tiny = job.problem.flops() < 131072.0;
  if (tiny || pool.threads <= 1 || tasks <= 1) {
    kernel.run(0, tasks);
    return;
  }
  pool.parallel_for(tasks, ceil_divide(tasks, pool.threads),
                    [&kernel](int64_t begin, int64_t end) { kernel.run(begin, end); });
}

template <class T, int Filter>
void run_fixed(const filter2d::Job& job, const ThreadPool& pool) {
  using A = Accumulator<T>;
  switch (job.reuse) {
    case filter2d::Reuse::none:
      return run_tasks<T, FixedTile<A, Filter, 1, false>>(job, pool);
    case filter2d::Reuse::columns:
      return run_tasks<T, FixedTile<A, Filter, 1, true>>(job, pool);
    case filter2d::Reuse::rows:
      return run_tasks<T, FixedTile<A, Filter, kTileRows, false>>(job, pool);
    case filter2d::Reuse::both:
      return run_tasks<T, FixedTile<A, Filter, kTileRows, true>>(job, pool);
  }
}

template <class T>
void run_typed(const filter2d::Job& job, const ThreadPool& pool) {
  using A = Accumulator<T>;
  if constexpr (sizeof(A) == 4) {
    if (filter2d::has_own_kernel(job.problem)) {
      const int64_t size = job.problem.filter_height;
      if (size == 3) return run_fixed<T, 3>(job, pool);
      if (size == 5) return run_fixed<T, 5>(job, pool);
      return run_fixed<T, 7>(job, pool);
    }
  }
  if (job.reuse == filter2d::Reuse::none) return run_tasks<T, GeneralTile<A, 1>>(job, pool);
  run_tasks<T, GeneralTile<A, kTileRows>>(job, pool);
}

}  // namespace image_filter

void run(const filter2d::Job& job, const ThreadPool& pool) {
  switch (job.problem.dtype) {
    case filter2d::ImageType::float32:
      return image_filter::run_typed<float>(job, pool);
    case filter2d::ImageType::float64:
      return image_filter::run_typed<double>(job, pool);
    case filter2d::ImageType::float16:
      return image_filter::run_typed<Half>(job, pool);
    case filter2d::ImageType::bfloat16:
      return image_filter::run_typed<Brain>(job, pool);
    case filter2d::ImageType::uint8:
      return image_filter::run_typed<uint8_t>(job, pool);
  }
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
