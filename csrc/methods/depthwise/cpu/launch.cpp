// Describes a problem to the kernels of the instruction set asked for.
#include <optional>

#include "methods/depthwise/cpu/job.h"
#include "methods/depthwise/depthwise.h"

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
  job.filter_height = problem.filter_height;
  job.filter_width = problem.filter_width;
  job.stride_h = problem.stride_h;
  job.stride_w = problem.stride_w;
  job.dilation_h = problem.dilation_h;
  job.dilation_w = problem.dilation_w;
  job.threads = pool.threads;
  job.slices = plan["slices"];
  job.source_height = problem.in_height;
  job.source_width = problem.in_width;
  job.target_height = problem.out_height;
  job.target_width = problem.out_width;
  job.pad_top = problem.padding_top;
  job.pad_left = problem.padding_left;
  job.source = pointers.input;
  if (problem.operation == Operation::weight_grad) {
    job.target_grad = pointers.output_grad;
  } else if (problem.operation == Operation::input_grad) {
    job.source = pointers.output_grad;
    job.source_height = problem.out_height;
    job.source_width = problem.out_width;
    job.target_height = problem.in_height;
    job.target_width = problem.in_width;
    job.flipped = problem.stride_h == 1 && problem.stride_w == 1;
    job.transposed = !job.flipped;
    if (job.flipped) {
      job.pad_top = (problem.filter_height - 1) * problem.dilation_h - problem.padding_top;
      job.pad_left = (problem.filter_width - 1) * problem.dilation_w - problem.padding_left;
    }
  }
  std::optional<Columns> columns;
  if (job.algorithm == Algorithm::general) {
    job.columns = &columns.emplace(job, vector_lanes(isa, problem.dtype)).plan();
  }
  switch (isa) {
    case CpuIsa::avx512:
      return avx512::run(job, pool);
    case CpuIsa::avx2:
      return avx2::run(job, pool);
    case CpuIsa::baseline:
      return baseline::run(job, pool);
  }
}

}  // namespace convx::depthwise
