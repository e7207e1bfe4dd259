// Describes a problem to the kernels of the instruction set asked for.
#include "methods/filter2d/cpu/job.h"
#include "methods/filter2d/filter2d.h"
#include "methods/instruction_set.h"

namespace convx::filter2d {

void launch_cpu(const Plan& plan, const FilterProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  Job job{};
  job.problem = problem;
  job.reuse = static_cast<Reuse>(plan["reuse"]);
  job.images = pointers.input;
  job.filters = pointers.weight;
  job.epilogue = epilogue_arguments<void>(problem.epilogue, pointers.epilogue, pointers.result);
  job.result = pointers.result;
  job.threads = pool.threads;
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  launch_cpu(plan, filter_problem(problem), pointers, pool, isa);
}

}  // namespace convx::filter2d
