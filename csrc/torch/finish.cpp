#include "torch/finish.h"

#include <array>

#include "choose/plans.h"
#include "torch/backend.h"
#include "torch/dispatch.h"
#include "torch/run.h"

namespace convx {
namespace {

// The epilogue alone, as a depthwise convolution by ones.
ConvProblem by_ones(const ConvProblem& problem) {
  ConvProblem p;
  p.dtype = problem.dtype;
  p.layout = problem.layout;
  p.epilogue = problem.epilogue;
  p.batch = problem.batch;
  p.in_channels = p.out_channels = p.groups = problem.out_channels;
  p.in_height = problem.out_height;
  p.in_width = problem.out_width;
  validate_and_size(p);
  return p;
}

// One pass over dense sums, where torch's operators take one for each of the steps.
Tensor run_ones(const Plan& plan, const ConvProblem& p, const Tensor& sums, const EpilogueTensors& epilogue) {
  const TensorView view(sums);
  const Tensor weight = torch::stable::fill_(allocate({p.in_channels, 1, 1, 1}, Layout::nchw, view), 1.0);
  Tensor result = allocate({p.batch, p.out_channels, p.out_height, p.out_width}, p.layout, view);
  Pointers pointers;
  pointers.input = sums.const_data_ptr();
  pointers.weight = weight.const_data_ptr();
  pointers.epilogue = pointers_of(epilogue);
  pointers.result = result.mutable_data_ptr();
  run(plan, p, pointers, view);
  return result;
}

Tensor add(const Tensor& a, const Tensor& b) {
  return torch::stable::subtract(a, b, -1.0);  // the stable ABI has no sum of two
}

// The activation alone; the sums themselves where there is none.
Tensor activate(const ConvProblem& problem, const Tensor& sums) {
  switch (problem.epilogue.activation) {
    case Activation::none:
      return sums;
    case Activation::relu:
      return call("aten::relu", "", sums);
    case Activation::relu6:
      return call("aten::relu6", "", sums);
    case Activation::silu:
      return call("aten::silu", "", sums);
    case Activation::hardswish:
      return call("aten::hardswish", "", sums);
    // aten::gelu would take a text, and of those that it is handed through its stable ABI torch (2.11
    // to 2.13) leaves a copy on the heap at every call.
    case Activation::gelu: {
      ConvProblem gelu = problem;
      gelu.epilogue = {};
      gelu.epilogue.activation = Activation::gelu;
      return finish(gelu, sums, {});
    }
  }
  return sums;
}

// By torch's operators, for GPUs whose kernels have no scale and residual in them, and of single steps.
Tensor finish_by_steps(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue) {
  const std::array<int64_t, 4> per_channel = {1, problem.out_channels, 1, 1};
  const auto along_channels = [&](const Tensor& values) {
    return torch::stable::view(values, IntHeaderOnlyArrayRef(per_channel.data(), per_channel.size()));
  };
  Tensor result = sums;
  if (epilogue.scale.has_value())
    result = call("aten::mul", "Tensor", result, along_channels(*epilogue.scale));
  if (epilogue.bias.has_value()) result = add(result, along_channels(*epilogue.bias));
  const bool after = problem.epilogue.residual_after_activation;
  if (epilogue.residual.has_value() && !after) result = add(result, *epilogue.residual);
  result = activate(problem, result);
  if (epilogue.residual.has_value() && after) result = add(result, *epilogue.residual);
  return result;
}

// One that torch has an operator for.
bool is_one_step(const Epilogue& epilogue) {
  const bool activates = epilogue.activation != Activation::none;
  return epilogue.has_scale + epilogue.has_bias + epilogue.has_residual + activates == 1 &&
         epilogue.activation != Activation::gelu;
}

}  // namespace

Tensor finish(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue) {
  if (problem.epilogue == Epilogue{}) return sums;
  const TensorView view(sums);
  const Tensor result = dense(sums, view, problem.layout);
  if (finish_in_place(problem, pointers_of(epilogue), result.mutable_data_ptr(), view.device_index)) {
    return result;
  }
  if (is_one_step(problem.epilogue)) return finish_by_steps(problem, result, epilogue);
  const ConvProblem ones = by_ones(problem);
  const auto plan = plan_for(ones, device_traits(view.device_index), "depthwise");
  return plan->finishes_apart ? finish_by_steps(problem, result, epilogue)
                              : run_ones(*plan, ones, result, epilogue);
}

}  // namespace convx
