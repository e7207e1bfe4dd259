// Describes a problem to the kernels of the instruction set asked for.
#include "methods/instruction_set.h"
#include "methods/packing/crsk.h"
#include "methods/pointwise/cpu/job.h"
#include "methods/pointwise/family.h"
#include "methods/pointwise/pointwise.h"

namespace convx::pointwise {
namespace {

template <class Job>
void run(const Job& job, const ThreadPool& pool, CpuIsa isa) {
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

ProductJob product_job(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  const bool forward = problem.operation == Operation::forward;
  const Product product = product_of(problem);
  ProductJob job{};
  job.dtype = problem.dtype;
  job.channels_last = problem.layout == Layout::nhwc;
  job.pixel_lanes = plan.kernel == kCpuPixels;
  job.source = forward ? pointers.input : pointers.output_grad;
  job.weight = pointers.packed_weight;
  job.epilogue = epilogue_arguments<void>(problem, pointers);
  job.result = pointers.result;
  job.batch = grid_images(problem);
  job.groups = problem.groups;
  job.depth = product.depth, job.channels = product.rows;
  job.grid = grid_of(problem);
  job.covers = job.grid.pixels() == job.grid.result.plane;
  job.wave_w = plan["wave_w"], job.wave_c = plan["wave_c"];
  job.repeat_w = plan["repeat_w"], job.repeat_c = plan["repeat_c"];
  job.stage_c = plan["stage_c"];
  return job;
}

WeightJob weight_job(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  WeightJob job{};
  job.dtype = problem.dtype;
  job.channels_last = problem.layout == Layout::nhwc;
  job.input = pointers.input, job.output_grad = pointers.output_grad;
  job.result = pointers.result;
  job.workspace = plan.workspace_bytes > 0 ? pointers.workspace : nullptr;
  job.batch = grid_images(problem);
  job.groups = problem.groups;
  job.filters = problem.out_channels_per_group(), job.channels = problem.in_channels_per_group();
  job.grid = grid_of(problem);
  job.rows = plan["rows"], job.columns = plan["columns"];
  job.pixels = plan["pixels"], job.slices = plan["slices"];
  return job;
}

}  // namespace

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  if (plan.kernel == kCpuWeight) return run(weight_job(plan, problem, pointers), pool, isa);
  run(product_job(plan, problem, pointers), pool, isa);
}

void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool) {
  packing::pack_crsk_cpu(problem, plan["wave_c"], weight, packed, pool);
}

}  // namespace convx::pointwise
