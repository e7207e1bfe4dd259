// Describes a problem to the kernels of the instruction set asked for.
#include "methods/filter2d/cpu/job.h"
#include "methods/filter2d/filter2d.h"

namespace convx::filter2d {

void launch_filter_cpu(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                       const ThreadPool& pool, CpuIsa isa) {
  Job job{};
  job.problem = problem;
  job.reuse = static_cast<Reuse>(plan["reuse"]);
  job.images = pointers.images;
  job.filters = pointers.filters;
  job.epilogue = epilogue_arguments<void>(problem.epilogue, pointers.epilogue, pointers.result);
  job.result = pointers.result;
  job.threads = pool.threads;
  switch (isa) {
    case CpuIsa::avx512:
      return avx512::run(job, pool);
    case CpuIsa::avx2:
      return avx2::run(job, pool);
    case CpuIsa::baseline:
      return baseline::run(job, pool);
  }
}

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  launch_filter_cpu(plan, filter_problem(problem),
                    {pointers.input, pointers.weight, pointers.result, pointers.epilogue}, pool, isa);
}

}  // namespace convx::filter2d
