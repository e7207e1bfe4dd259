// Describes a problem to the kernels of the instruction set asked for.
#include "methods/instruction_set.h"
#include "methods/squeeze_excite/cpu/job.h"
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx::squeeze_excite {

void launch_cpu(const Plan& /*plan*/, const ExciteProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  Job job{};
  job.dtype = problem.dtype;
  job.channels_last = problem.layout == Layout::nhwc;
  job.input = pointers.input;
  job.weights = *static_cast<const ExciteWeights*>(pointers.weight);
  job.result = pointers.result;
  job.activation = problem.activation, job.gate = problem.gate;
  job.batch = problem.batch, job.channels = problem.channels;
  job.squeezed = problem.squeezed_channels, job.pixels = problem.pixels();
  job.workspace = pointers.workspace;
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

}  // namespace convx::squeeze_excite
