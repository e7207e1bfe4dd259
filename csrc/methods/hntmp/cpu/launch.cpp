// Describes a problem to the kernels of the instruction set asked for.
#include "methods/hntmp/cpu/job.h"
#include "methods/hntmp/cpu/thread_memory.h"
#include "methods/hntmp/hntmp.h"
#include "methods/packing/crsk.h"

namespace convx::hntmp {

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  const bool forward = problem.operation == Operation::forward;
  Job job{};
  job.dtype = problem.dtype;
  job.channels_last = problem.layout == Layout::nhwc;
  job.source = forward ? pointers.input : pointers.output_grad;
  job.weight = pointers.packed_weight;
  job.epilogue = epilogue_arguments<void>(problem, pointers);
  job.result = pointers.result;
  job.sweep = cpu_sweep_of(problem, isa);
  job.rows = plan["rows"];
  job.blocks = plan["blocks"];
  job.source_channels = plan["source_channels"];
  job.memory =
      memory_of<int64_t>(job.sweep, job.rows, job.source_channels, plan["vector_lanes"], problem.dtype);
  job.workspace = pointers.workspace;
  job.threads = plan["threads"];
  switch (isa) {
    case CpuIsa::avx512:
      return avx512::run(job, pool);
    case CpuIsa::avx2:
      return avx2::run(job, pool);
    case CpuIsa::baseline:
      return baseline::run(job, pool);
  }
}

void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool) {
  packing::pack_crsk_cpu(problem, plan["block_channels"], weight, packed, pool);
}

}  // namespace convx::hntmp
