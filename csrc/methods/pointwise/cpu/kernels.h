// The CPU form of pointwise convolution. Included last by each cpu_*.cpp.
#pragma once
#include "methods/pointwise/cpu/forms.h"
#include "methods/pointwise/cpu/weight.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace products {

// Less than some ten microseconds of work stays in this thread.
constexpr double kWorthThreads = 4e5;  // multiply-adds

template <class Kernel>
void run_tasks(const Kernel& kernel, double products, const ThreadPool& pool) {
  const int64_t tasks = kernel.tasks();
  if (pool.threads <= 1 || tasks <= 1 || products < kWorthThreads) return kernel.run(0, tasks);
  pool.parallel_for(tasks, ceil_divide(tasks, pool.threads),
                    [&kernel](int64_t begin, int64_t end) { kernel.run(begin, end); });
}

// Every result as it is without products, where some have none.
template <class T>
void fill(const ProductJob& job, const ThreadPool& pool) {
  using A = Accumulator<T>;
  const int64_t channels = job.groups * job.channels, plane = job.grid.result.plane;
  const int64_t images = job.batch * (job.channels_last ? plane : 1);
  const int64_t run = job.channels_last ? 1 : plane;
  pool.parallel_for(images, ceil_divide(images, pool.threads), [&](int64_t begin, int64_t end) {
    T* target = static_cast<T*>(job.result) + begin * channels * run;
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t c = 0; c < channels; ++c, target += run) {
        const A bias = job.bias != nullptr ? widen(static_cast<const T*>(job.bias)[c]) : A(0);
        const Simd<A, kLanes<A>> value =
            activate<A, kLanes<A>>(broadcast<Simd<A, kLanes<A>>>(bias), job.activation);
        for (int64_t p = 0; p < run; ++p) store_one(target + p, static_cast<A>(value[0]));
      }
    }
  });
}

template <class T>
void run_typed(const ProductJob& job, const ThreadPool& pool) {
  if (!job.covers) fill<T>(job, pool);
  const double products = static_cast<double>(job.batch * job.groups * job.channels) *
                          static_cast<double>(job.grid.pixels() * job.depth);
  if (job.grid.pixels() == 0) return;
  if (job.pixel_lanes) {
    run_tasks(PixelLanes<T>{{job}}, products, pool);
  } else {
    run_tasks(FilterLanes<T>{{job}}, products, pool);
  }
}

template <class T>
void run_typed(const WeightJob& job, const ThreadPool& pool) {
  const int64_t rows = job.groups * job.filters;
  if (job.grid.pixels() == 0) {  // every output is of padding alone
    std::memset(job.result, 0, static_cast<size_t>(rows * job.channels) * sizeof(T));
    return;
  }
  const WeightSums<T> kernel{job};
  run_tasks(kernel,
            static_cast<double>(job.batch * rows) * static_cast<double>(job.grid.pixels() * job.channels),
            pool);
  if (job.workspace == nullptr) return;
  const int64_t grain = maximum(ceil_divide(rows, pool.threads), ceil_divide(32768, job.channels));
  pool.parallel_for(rows, grain, [&kernel](int64_t begin, int64_t end) { kernel.add_slices(begin, end); });
}

template <class Job>
void run_job(const Job& job, const ThreadPool& pool) {
  switch (job.dtype) {
    case DType::float32:
      return run_typed<float>(job, pool);
    case DType::float64:
      return run_typed<double>(job, pool);
    case DType::float16:
      return run_typed<Half>(job, pool);
    case DType::bfloat16:
      return run_typed<Brain>(job, pool);
  }
}

}  // namespace products

void run(const pointwise::ProductJob& job, const ThreadPool& pool) {
  products::run_job(job, pool);
}
void run(const pointwise::WeightJob& job, const ThreadPool& pool) {
  products::run_job(job, pool);
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
