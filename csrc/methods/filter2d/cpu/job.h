// What the launcher hands to the kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/epilogue.h"
#include "plan/launch.h"
#include "problem/filter_problem.h"

namespace convx::filter2d {

// Which of the paper's two reuses a CPU kernel makes. Row reuse: a source row that is loaded meets every
// result row of the tile that it touches. Column reuse: a source vector is loaded once and shifted in
// registers to the filter's other columns, where otherwise each column is an unaligned load of its own.
enum class Reuse : uint8_t { none, columns, rows, both };

// Filters that have kernels of their own; the others go through one for any filter, which has no column
// reuse.
constexpr bool has_own_kernel(const FilterProblem& problem) {
  const int64_t size = problem.filter_height;
  return size == problem.filter_width && (size == 3 || size == 5 || size == 7) && problem.dilation_h == 1 &&
         problem.dilation_w == 1 && problem.dtype != ImageType::float64;
}

struct Job {
  FilterProblem problem;
  Reuse reuse;
  const void* images;
  const void* filters;
  EpilogueArguments<void> epilogue;
  void* result;
  int64_t threads;
};

}  // namespace convx::filter2d

namespace convx::avx512 {
void run(const filter2d::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const filter2d::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const filter2d::Job& job, const ThreadPool& pool);
}
