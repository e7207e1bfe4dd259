// Describes a problem to the kernels of the instruction set asked for.
#include "methods/channel_norm/channel_norm.h"
#include "methods/channel_norm/cpu/job.h"
#include "methods/instruction_set.h"

namespace convx::channel_norm {

void launch_cpu(const NormProblem& problem, const Pointers& pointers, const ThreadPool& pool, CpuIsa isa) {
  const Job job = {problem, static_cast<const float*>(pointers.input), static_cast<float*>(pointers.result)};
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

}  // namespace convx::channel_norm
