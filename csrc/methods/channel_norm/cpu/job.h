// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors.
#pragma once
#include "plan/launch.h"
#include "problem/norm_problem.h"

namespace convx::channel_norm {

struct Job {
  const NormProblem& problem;
  const float* input;
  float* result;
};

}  // namespace convx::channel_norm

namespace convx::avx512 {
void run(const channel_norm::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const channel_norm::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const channel_norm::Job& job, const ThreadPool& pool);
}
