// Describes a problem to the kernels of the instruction set asked for.
#include "methods/cuconv/cpu/job.h"
#include "methods/cuconv/cuconv.h"
#include "methods/instruction_set.h"
#include "methods/packing/crsk.h"

namespace convx::cuconv {

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  const bool forward = problem.operation == Operation::forward;
  Job job{};
  job.dtype = problem.dtype;
  job.source = forward ? pointers.input : pointers.output_grad;
  job.weight = pointers.packed_weight;
  job.epilogue = epilogue_arguments<void>(problem, pointers);
  job.result = pointers.result;
  job.workspace = plan.workspace_bytes > 0 ? pointers.workspace : nullptr;
  job.sweep = sweep_of(problem);
  job.images = plan["images"];
  job.positions = plan["positions"];
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool) {
  packing::pack_crsk_cpu(problem, plan["filters"], weight, packed, pool);
}

}  // namespace convx::cuconv
