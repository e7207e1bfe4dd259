// Pooling between convolutions: on CPUs in a chain, cpu/kernels.h; on GPUs without the places of the greatest
// values, int64 numbers that torch's max pooling writes for its gradient: kernel.cuh.
#pragma once
#include "plan/launch.h"
#include "problem/device.h"
#include "problem/pooling_problem.h"

namespace convx::pooling {

// Of float32. pointers, here and below: input and result.
void launch_cpu(const PoolingProblem& problem, const Pointers& pointers, const ThreadPool& pool, CpuIsa isa);

// Windows that kernels know when they are compiled: of three rows and columns, moved by two or by one, and of
// two, moved by two.
enum class Square { none, three_by_two, three, two_by_two };

inline Square square_of(const PoolingProblem& p) {
  const auto are = [&](int64_t filter, int64_t stride) {
    const auto is = [&](const PoolingWindow& window) {
      return window.filter == filter && window.stride == stride && window.dilation == 1;
    };
    return is(p.down) && is(p.across);
  };
  return are(3, 2)   ? Square::three_by_two
         : are(3, 1) ? Square::three
         : are(2, 2) ? Square::two_by_two
                     : Square::none;
}

// Of float32 and 16 bits; averages of squares alone, since torch's of others are as fast. What a kernel
// counts with are 31 bits.
inline bool gpu_takes(const PoolingProblem& p) {
  constexpr int64_t kMost = int64_t{1} << 31, kMostAcross = int64_t{1} << 16;
  const auto are_few = [&](int64_t rows, int64_t columns) {
    return rows * columns < kMost / (p.batch * p.channels);
  };
  const auto is_small = [](const PoolingWindow& window) {
    return window.filter * window.dilation <= kMostAcross && window.stride <= kMostAcross;
  };
  const bool has_kernel = p.kind == Pooling::max || square_of(p) != Square::none;
  return has_kernel && p.dtype != DType::float64 && is_small(p.down) && is_small(p.across) &&
         p.divisor < kMost && are_few(p.down.extent, p.across.extent) &&
         are_few(p.down.results, p.across.results);
}

// Pointers are aligned to 16 bytes.
void launch_gpu(const PoolingProblem& problem, const Pointers& pointers, Stream stream);

}  // namespace convx::pooling
