// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors.
#pragma once
#include "plan/launch.h"
#include "problem/pooling_problem.h"

namespace convx::pooling {

struct Job {
  const PoolingProblem& problem;
  const float* input;
  float* result;
};

}  // namespace convx::pooling

namespace convx::avx512 {
void run(const pooling::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const pooling::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const pooling::Job& job, const ThreadPool& pool);
}
