// What the launcher hands to the CPU kernels of one instruction set: plain data, no tensors, no plan.
#pragma once
#include <cstdint>

#include "plan/launch.h"
#include "problem/excite_problem.h"

namespace convx::squeeze_excite {

struct Job {
  DType dtype;
  bool channels_last;
  const void* input;
  ExciteWeights weights;
  void* result;
  Activation activation;
  Gate gate;
  int64_t batch, channels, squeezed, pixels;
  void* workspace;  // of each image, in accumulators: channels, squeezed, channels
};

}  // namespace convx::squeeze_excite

namespace convx::avx512 {
void run(const squeeze_excite::Job& job, const ThreadPool& pool);
}
namespace convx::avx2 {
void run(const squeeze_excite::Job& job, const ThreadPool& pool);
}
namespace convx::baseline {
void run(const squeeze_excite::Job& job, const ThreadPool& pool);
}
