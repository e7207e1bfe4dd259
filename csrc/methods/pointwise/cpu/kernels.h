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

// Every result as it is without products, where some have none: zero, or of the epilogue alone.
template <class T>
void fill(const ProductJob& job, const ThreadPool& pool) {
  using A = Accumulator<T>;
  constexpr int L = kLanes<A>;
  const int64_t channels = job.groups * job.channels, plane = job.grid.result.plane;
  T* const result = static_cast<T*>(job.result);
  // Runs of one pixel's channels, or of one channel's pixels.
  const int64_t runs = job.batch * (job.channels_last ? plane : channels);
  const int64_t length = job.channels_last ? channels : plane;
  const auto finished = [&job](int64_t channel, const T* place, int64_t count) {
    const ChannelEpilogue<T> epilogue(job.epilogue, channel);
    return epilogue.template operator()<L>(Simd<A, L>{}, place, count);
  };
  const bool is_zero = job.epilogue.bias == nullptr && job.epilogue.more == 0;
  pool.parallel_for(runs, maximum(ceil_divide(runs, pool.threads), ceil_divide(32768, length)),
                    [&](int64_t begin, int64_t end) {
                      if (is_zero) {  // every activation of zero is zero
                        std::memset(result + begin * length, 0,
                                    static_cast<size_t>((end - begin) * length) * sizeof(T));
                        return;
                      }
                      T* const first = result + begin * length;
                      if (job.channels_last) {
                        // Pixels differ by their residuals alone.
                        const int64_t pixels = Ending<T>(job.epilogue).adds() ? end - begin : 1;
                        for (int64_t i = 0; i < pixels * channels; ++i) {
                          store_one(first + i, static_cast<A>(finished(i % channels, first + i, 1)[0]));
                        }
                        for (int64_t i = pixels; i < end - begin; ++i) {
                          std::memcpy(first + i * length, first, static_cast<size_t>(length) * sizeof(T));
                        }
                        return;
                      }
                      for (int64_t i = begin; i < end; ++i) {
                        T* const target = result + i * length;
                        for (int64_t p = 0; p < length; p += L) {
                          const int64_t count = minimum(length - p, L);
                          const Simd<A, L> value = finished(i % channels, target + p, count);
                          count == L ? store<L>(target + p, value) : store_some<L>(target + p, value, count);
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
  with_element(job.dtype, [&](auto element) { run_typed<decltype(element)>(job, pool); });
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
