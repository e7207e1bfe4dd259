// The CPU form of squeeze-and-excitation. Included last by each cpu_*.cpp.
#pragma once
#include "methods/gates/cpu.h"
#include "platform/cpu/rows.h"
#include "platform/cpu/simd.h"

namespace convx {
namespace CONVX_SIMD_NAMESPACE {
namespace exciting {

template <class T>
struct Kernel {
  using A = Accumulator<T>;
  static constexpr int L = kLanes<A>;
  using V = Simd<A, L>;
  static constexpr int64_t kBlock = 4 * L;  // channels of pixels that are summed at the same time

  const squeeze_excite::Job& job;

  // An image's: means, squeezed values and gates of the workspace.
  A* means(int64_t image) const {
    return static_cast<A*>(job.workspace) + image * (2 * job.channels + job.squeezed);
  }
  A* squeezed(int64_t image) const { return means(image) + job.channels; }
  A* gates(int64_t image) const { return squeezed(image) + job.squeezed; }
  const T* input(int64_t image) const {
    return static_cast<const T*>(job.input) + image * job.channels * job.pixels;
  }
  T* result(int64_t image) const { return static_cast<T*>(job.result) + image * job.channels * job.pixels; }

  // The means of some channels.
  void average(int64_t image, int64_t begin, int64_t end) const {
    const A per_pixel = A(1) / static_cast<A>(job.pixels);
    A* const own = means(image);
    if (!job.channels_last) {
      for (int64_t c = begin; c < end; ++c) own[c] = plane_sum(input(image) + c * job.pixels) * per_pixel;
      return;
    }
    int64_t c = begin;
    for (; c + kBlock <= end; c += kBlock) sum_pixels<4>(input(image) + c, own + c, per_pixel);
    for (; c + L <= end; c += L) sum_pixels<1>(input(image) + c, own + c, per_pixel);
    for (; c < end; ++c) {
      A sum = 0;
      for (int64_t pixel = 0; pixel < job.pixels; ++pixel)
        sum += widen(input(image)[pixel * job.channels + c]);
      own[c] = sum * per_pixel;
    }
  }

  A plane_sum(const T* plane) const {
    V sums[4] = {};
    int64_t i = 0;
    for (; i + 4 * L <= job.pixels; i += 4 * L) {
      for (int k = 0; k < 4; ++k) sums[k] += load<L>(plane + i + k * L);
    }
    for (; i + L <= job.pixels; i += L) sums[0] += load<L>(plane + i);
    A sum = sum_lanes<A, L>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < job.pixels; ++i) sum += widen(plane[i]);
    return sum;
  }

  template <int Vectors>
  CONVX_INLINE void sum_pixels(const T* first, A* sums, A per_pixel) const {
    V total[Vectors] = {};
    for (int64_t pixel = 0; pixel < job.pixels; ++pixel) {
      for (int k = 0; k < Vectors; ++k) total[k] += load<L>(first + pixel * job.channels + k * L);
    }
    for (int k = 0; k < Vectors; ++k) store<L>(sums + k * L, total[k] * per_pixel);
  }

  // A row of a matrix times a vector.
  static A product(const T* row, const A* values, int64_t count) {
    V sums[2] = {};
    int64_t i = 0;
    for (; i + 2 * L <= count; i += 2 * L) {
      sums[0] += load<L>(row + i) * load<L>(values + i);
      sums[1] += load<L>(row + i + L) * load<L>(values + i + L);
    }
    for (; i + L <= count; i += L) sums[0] += load<L>(row + i) * load<L>(values + i);
    A sum = sum_lanes<A, L>(sums[0] + sums[1]);
    for (; i < count; ++i) sum += widen(row[i]) * values[i];
    return sum;
  }

  static A bias_of(const void* bias, int64_t channel) {
    return bias == nullptr ? A(0) : A(widen(static_cast<const T*>(bias)[channel]));
  }

  void excite(int64_t image) const {
    const T* const squeeze_rows = static_cast<const T*>(job.weights.squeeze);
    for (int64_t s = 0; s < job.squeezed; ++s) {
      const A sum = product(squeeze_rows + s * job.channels, means(image), job.channels);
      const V value = broadcast<V>(sum + bias_of(job.weights.squeeze_bias, s));
      squeezed(image)[s] = activate<A, L>(value, job.activation)[0];
    }
    A* const own = gates(image);
    const T* const excite_rows = static_cast<const T*>(job.weights.excite);
    for (int64_t c = 0; c < job.channels; ++c) {
      own[c] = product(excite_rows + c * job.squeezed, squeezed(image), job.squeezed) +
               bias_of(job.weights.excite_bias, c);
    }
    for (int64_t c = 0; c < job.channels; c += L) {
      V value = {};
      for (int64_t lane = 0; lane < L && c + lane < job.channels; ++lane) value[lane] = own[c + lane];
      value = gate_of<A, L>(value, job.gate);
      for (int64_t lane = 0; lane < L && c + lane < job.channels; ++lane) own[c + lane] = value[lane];
    }
  }

  // Some channels' planes, or some pixels.
  void scale(int64_t image, int64_t begin, int64_t end) const {
    const T* const from = input(image);
    T* const to = result(image);
    const A* const own = gates(image);
    const int64_t length = job.channels_last ? job.channels : job.pixels;
    for (int64_t run = begin; run < end; ++run) {
      const int64_t first = run * length;
      int64_t i = 0;
      for (; i + L <= length; i += L) {
        const V gate = job.channels_last ? load<L>(own + i) : broadcast<V>(own[run]);
        store<L>(to + first + i, load<L>(from + first + i) * gate);
      }
      for (; i < length; ++i) {
        store_one(to + first + i, A(widen(from[first + i])) * own[job.channels_last ? i : run]);
      }
    }
  }

  int64_t runs() const { return job.channels_last ? job.pixels : job.channels; }
};

template <class T>
void run_typed(const squeeze_excite::Job& job, const ThreadPool& pool) {
  const Kernel<T> kernel{job};
  const auto run_image = [&kernel, &job](int64_t image) {
    kernel.average(image, 0, job.channels);
    kernel.excite(image);
    kernel.scale(image, 0, kernel.runs());
  };
  // Less than some ten microseconds of work stays in this thread.
  const bool is_tiny = job.batch * job.channels * job.pixels < 65536;
  if (pool.threads <= 1 || is_tiny) {
    for (int64_t image = 0; image < job.batch; ++image) run_image(image);
    return;
  }
  if (job.batch >= pool.threads) {  // images stay in a thread's caches
    pool.parallel_for(job.batch, ceil_divide(job.batch, pool.threads), [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) run_image(image);
    });
    return;
  }
  const auto shared_out = [&pool](int64_t count, const auto& body) {
    pool.parallel_for(count, ceil_divide(count, pool.threads), body);
  };
  for (int64_t image = 0; image < job.batch; ++image) {
    const int64_t blocks = ceil_divide(job.channels, Kernel<T>::L);
    shared_out(blocks, [&](int64_t begin, int64_t end) {
      kernel.average(image, begin * Kernel<T>::L, minimum(end * Kernel<T>::L, job.channels));
    });
    kernel.excite(image);
    shared_out(kernel.runs(), [&](int64_t begin, int64_t end) { kernel.scale(image, begin, end); });
  }
}

}  // namespace exciting

void run(const squeeze_excite::Job& job, const ThreadPool& pool) {
  with_element(job.dtype, [&](auto element) { exciting::run_typed<decltype(element)>(job, pool); });
}

}  // namespace CONVX_SIMD_NAMESPACE
}  // namespace convx
