#include "torch/finish.h"

#include <array>
#include <memory>

#include "choose/plans.h"
#include "torch/backend.h"
#include "torch/dispatch.h"
#include "torch/run.h"

namespace convx {
namespace {

// An epilogue alone, as a depthwise convolution by ones.
ConvProblem by_ones(const ConvProblem& problem, const Epilogue& epilogue) {
  ConvProblem p;
  p.dtype = problem.dtype;
  p.layout = problem.layout;
  p.epilogue = epilogue;
  p.batch = problem.batch;
  p.in_channels = p.out_channels = p.groups = problem.out_channels;
  p.in_height = problem.out_height;
  p.in_width = problem.out_width;
  validate_and_size(p);
  return p;
}

std::shared_ptr<const Plan> plan_of(const ConvProblem& ones, const Tensor& sums) {
  return plan_for(ones, device_traits(TensorView(sums).device_index), "depthwise");
}

// One pass over the sums, where torch's operators take one for each of the steps.
Tensor run_ones(const Plan& plan, const ConvProblem& p, const Tensor& sums, const EpilogueTensors& epilogue) {
  const TensorView view(sums);
  const Tensor input = dense(sums, view, p.layout);
  const Tensor weight = torch::stable::fill_(allocate({p.in_channels, 1, 1, 1}, Layout::nchw, view), 1.0);
  Tensor result = allocate({p.batch, p.out_channels, p.out_height, p.out_width}, p.layout, view);
  Pointers pointers;
  pointers.input = input.const_data_ptr();
  pointers.weight = weight.const_data_ptr();
  pointers.epilogue = pointers_of(epilogue);
  pointers.result = result.mutable_data_ptr();
  run(plan, p, pointers, view);
  return result;
}

Tensor add(const Tensor& a, const Tensor& b) {
  return torch::stable::subtract(a, b, -1.0);  // the stable ABI has no sum of two
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

bool is_one_step(const ConvProblem& problem, const EpilogueTensors& epilogue) {
  return epilogue.scale.has_value() + epilogue.bias.has_value() + epilogue.residual.has_value() == 1 &&
         problem.epilogue.activation == Activation::none;
}

}  // namespace

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
      Epilogue gelu;
      gelu.activation = Activation::gelu;
      const ConvProblem ones = by_ones(problem, gelu);
      return run_ones(*plan_of(ones, sums), ones, sums, {});
    }
  }
  return sums;
}

Tensor finish(const ConvProblem& problem, const Tensor& sums, const EpilogueTensors& epilogue) {
  if (is_one_step(problem, epilogue)) return finish_by_steps(problem, sums, epilogue);
  const ConvProblem ones = by_ones(problem, problem.epilogue);
  const auto plan = plan_of(ones, sums);
  return plan->finishes_apart ? finish_by_steps(problem, sums, epilogue)
                              : run_ones(*plan, ones, sums, epilogue);
}

}  // namespace convx
