// A thread finishes 16 bytes of sums: memory is all that this waits for.
#pragma once
#include "methods/epilogue.cuh"
#include "platform/gpu/fast_divide.h"
#include "platform/gpu/overlap.h"
#include "problem/problem.h"

namespace convx {

constexpr int kFinishThreads = 256;

template <class T>
struct FinishArguments {
  T* sums;
  const T* bias;  // initial_bias
  uint64_t count;
  uint64_t plane, channels;  // of neighbouring sums, plane are of one channel; in channels_last one is
  FastDivide by_plane, by_channels;
  bool is_large;  // for those two
  Finishing<T> finishing;
};

template <class T>
CONVX_DEVICE int64_t channel_at(const FinishArguments<T>& a, uint64_t index) {
  if (a.is_large) return static_cast<int64_t>(index / a.plane % a.channels);
  return a.by_channels.remainder(a.by_plane.quotient(static_cast<uint32_t>(index)));
}

template <class T>
CONVX_KERNEL(kFinishThreads, 1)
finish_kernel(FinishArguments<T> a) {
  using A = Accumulator<T>;
  constexpr int kCount = 16 / sizeof(T);
  const uint64_t first = (static_cast<uint64_t>(blockIdx.x) * kFinishThreads + threadIdx.x) * kCount;
  take_turn();
  if (first >= a.count) return;
  T* const sums = a.sums + first;
  if (first + kCount > a.count) {
    for (uint64_t i = first; i < a.count; ++i) {
      const int64_t channel = channel_at(a, i);
      T* const place = a.sums + i;
      *place = finished(widen(*place) + bias_of(a.bias, channel), a.finishing, channel, place);
    }
    return;
  }
  Vector<T, kCount> values = *reinterpret_cast<const Vector<T, kCount>*>(sums);
  A row[kCount];
  CONVX_UNROLL
  for (int j = 0; j < kCount; ++j) row[j] = widen(values.element[j]);
  if (a.bias != nullptr) {
    CONVX_UNROLL
    for (int j = 0; j < kCount; ++j) row[j] += widen(a.bias[channel_at(a, first + j)]);
  }
  finish(
      row, a.finishing, [&](int j) { return channel_at(a, first + j); },
      [&](T(&residuals)[kCount]) { read_residuals(a.finishing, sums, residuals); });
  CONVX_UNROLL
  for (int j = 0; j < kCount; ++j) values.element[j] = narrow<T>(row[j]);
  store(sums, values);
}

template <class T>
FinishArguments<T> finish_arguments(const ConvProblem& problem, const EpiloguePointers& epilogue,
                                    void* sums) {
  FinishArguments<T> a{};
  a.sums = static_cast<T*>(sums);
  a.bias = initial_bias<T>(problem.epilogue, epilogue);
  a.count = static_cast<uint64_t>(problem.output_elements());
  a.channels = static_cast<uint64_t>(problem.out_channels);
  const int64_t plane = problem.layout == Layout::nhwc ? 1 : problem.out_height * problem.out_width;
  a.plane = static_cast<uint64_t>(plane);
  a.is_large = a.count >= uint64_t{1} << 31;
  if (!a.is_large) a.by_plane = divide_by(plane), a.by_channels = divide_by(problem.out_channels);
  a.finishing = finishing_of<T>(problem.epilogue, epilogue, sums);
  return a;
}

template <class T>
void launch_finish(const FinishArguments<T>& arguments, Stream stream) {
  constexpr uint64_t kBlock = kFinishThreads * (16 / sizeof(T));
  const Grid grid{static_cast<uint32_t>((arguments.count + kBlock - 1) / kBlock)};
  launch_in_turn(finish_kernel<T>, "finish", grid, kFinishThreads, 0, stream, arguments);
}

}  // namespace convx
