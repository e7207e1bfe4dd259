// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "methods/epilogue.h"
#include "methods/inverted_residual/cpu/geometry.h"
#include "plan/launch.h"
#include "problem/block_problem.h"

namespace convx::inverted_residual::cpu {

struct Job {
  const float* input;
  const float* packed;
  float* result;
  float* workspace;
  BlockProblem problem;
  Tiling tiling;
  Geometry geometry;
};

}  // namespace convx::inverted_residual::cpu

namespace convx::avx512 {
void run(const inverted_residual::cpu::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const inverted_residual::cpu::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const inverted_residual::cpu::Job& job, const ThreadPool& pool);
}
