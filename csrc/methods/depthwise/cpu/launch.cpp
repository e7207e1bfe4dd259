// Describes a problem to the kernels of the instruction set asked for.
#include <optional>

#include "methods/depthwise/cpu/job.h"
#include "methods/depthwise/depthwise.h"
#include "methods/instruction_set.h"
#include "problem/sweep.h"

namespace convx::depthwise {

void launch_cpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                const ThreadPool& pool, CpuIsa isa) {
  Job job{};
  job.operation = problem.operation;
  job.dtype = problem.dtype;
  job.channels_last = problem.layout == Layout::nhwc;
  job.algorithm = static_cast<Algorithm>(plan["algorithm"]);
  job.weight = pointers.weight;
  job.epilogue = epilogue_arguments<void>(problem, pointers);
  job.result = pointers.result;
  job.workspace = pointers.workspace;
  job.batch = problem.batch;
  job.channels = problem.in_channels;
  job.multiplier = problem.out_channels_per_group();
  const Sweep sweep = sweep_of(problem);
  job.source_height = sweep.source_height;
  job.source_width = sweep.source_width;
  job.target_height = sweep.result_height;
  job.target_width = sweep.result_width;
  job.filter_height = sweep.filter_height;
  job.filter_width = sweep.filter_width;
  job.stride_h = sweep.stride_h;
  job.stride_w = sweep.stride_w;
  job.dilation_h = sweep.dilation_h;
  job.dilation_w = sweep.dilation_w;
  job.pad_top = sweep.top;
  job.pad_left = sweep.left;
  job.flipped = sweep.flipped;
  job.transposed = sweep.transposed;
  job.threads = pool.threads;
  job.slices = plan["slices"];
  job.source = pointers.input;
  if (problem.operation == Operation::weight_grad) {
    job.target_grad = pointers.output_grad;
  } else if (problem.operation == Operation::input_grad) {
    job.source = pointers.output_grad;
  }
  std::optional<Columns> columns;
  if (job.algorithm == Algorithm::general) {
    job.columns = &columns.emplace(job, vector_lanes(isa, problem.dtype)).plan();
  }
  run_on(isa, job, pool, avx512::run, avx2::run, baseline::run);
}

}  // namespace convx::depthwise
