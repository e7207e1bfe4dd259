// Describes a problem to the kernels of the instruction set asked for.
#include "methods/instruction_set.h"
#include "methods/pooling/cpu/job.h"
#include "methods/pooling/pooling.h"

namespace convx::pooling {

void launch_cpu(const PoolingProblem& problem, const Pointers& pointers, const ThreadPool& pool, CpuIsa isa) {
  const Job job = {problem, static_cast<const float*>(pointers.input), static_cast<float*>(pointers.result)};
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

}  // namespace convx::pooling
