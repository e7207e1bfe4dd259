// Describes a problem to the kernels of the instruction set asked for.
#include "methods/hntmp/candidates.h"
#include "methods/hntmp/cpu/job.h"
#include "methods/hntmp/cpu/thread_memory.h"
#include "methods/hntmp/hntmp.h"
#include "methods/instruction_set.h"
#include "methods/packing/crsk.h"

namespace convx::hntmp {
namespace {

// Products that are summed apart. The 27 of a network's first convolution stay one chain, as they are
// torch's. Results of 16 bits round anyway.
int64_t chain_of(const ConvProblem& problem, const Sweep& sweep) {
  const int64_t products = sweep.source_channels * sweep.taps();
  if (element_size(problem.dtype) == 2) return products;
  return panels::products_apart(products, problem.operation == Operation::forward ? 6 : 5);
}

PixelsTiling pixels_tiling_of(const Plan& plan) {
  return {plan["vector_lanes"], plan["bands"], plan["parts"], plan["strip_rows"], plan["workers"]};
}

PixelsJob pixels_job(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  const PixelsTiling t = pixels_tiling_of(plan);
  PixelsJob job{};
  job.source = static_cast<const float*>(pointers.input);
  job.filters = static_cast<const float*>(pointers.packed_weight);
  job.epilogue = epilogue_arguments<void>(problem, pointers);
  job.result = static_cast<float*>(pointers.result);
  job.sweep = sweep_of(problem);
  job.bands = t.bands, job.parts = t.parts, job.strip_rows = t.strip_rows, job.workers = t.workers;
  job.geometry = pixels_geometry_of(job.sweep, t);
  job.workspace = static_cast<float*>(pointers.workspace);
  return job;
}

}  // namespace

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  if (plan.kernel == kCpuPixels) {
    return run_on(isa, pixels_job(plan, problem, pointers), pool, avx512::run, avx2::run, baseline::run);
  }
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
  job.chain = chain_of(problem, job.sweep);
  job.memory =
      memory_of<int64_t>(job.sweep, job.rows, job.source_channels, plan["vector_lanes"], problem.dtype);
  job.workspace = pointers.workspace;
  job.threads = plan["threads"];
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

void pack_weight_cpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     const ThreadPool& pool) {
  if (plan.kernel == kCpuPixels) {
    const int64_t channels = problem.in_channels, taps = problem.filter_height * problem.filter_width;
    panels::pack(static_cast<const float*>(weight), problem.out_channels, channels * taps,
                 plan["vector_lanes"], panels::kPanel, static_cast<float*>(packed),
                 [=](int64_t depth) { return depth % channels * taps + depth / channels; });
    return;
  }
  packing::pack_crsk_cpu(problem, plan["block_channels"], weight, packed, pool);
}

}  // namespace convx::hntmp
