// convx::inverted_residual and pack_inverted_residual: check, allocate, select, launch.
#include "methods/inverted_residual/inverted_residual.h"

#include "choose/plans.h"
#include "torch/arguments.h"
#include "torch/backend.h"
#include "torch/conv2d.h"
#include "torch/run.h"
#include "torch/squeeze_excite.h"

namespace convx {
namespace {

struct BlockTensors {
  const Tensor& expand;
  const std::optional<Tensor>& expand_bias;
  const Tensor& depthwise;
  const std::optional<Tensor>& depthwise_bias;
  const Tensor& project;
  const std::optional<Tensor>& project_bias;
  const std::optional<ExciteTensors>& excitation;
};

struct BlockOptions {
  int64_t expand_stride, stride;
  const Text &activation, &squeeze_activation, &gate, &output_activation;
  bool residual;
};

// Those of a block that has squeeze-and-excitation: both weights or none are given.
std::optional<ExciteTensors> excitation(const std::optional<Tensor>& squeeze_weight,
                                        const std::optional<Tensor>& squeeze_bias,
                                        const std::optional<Tensor>& excite_weight,
                                        const std::optional<Tensor>& excite_bias) {
  const struct {
    const char* name;
    const std::optional<Tensor>& tensor;
    const char* needed_name;
    const std::optional<Tensor>& needed;
  } pairs[] = {{"squeeze_weight", squeeze_weight, "excite_weight", excite_weight},
               {"excite_weight", excite_weight, "squeeze_weight", squeeze_weight},
               {"squeeze_bias", squeeze_bias, "squeeze_weight", squeeze_weight},
               {"excite_bias", excite_bias, "excite_weight", excite_weight}};
  for (const auto& [name, tensor, needed_name, needed] : pairs) {
    if (!tensor.has_value() || needed.has_value()) continue;
    throw InvalidArgument(std::string(name) + " needs " + needed_name + ", got " +
                          TensorView(*tensor).shape() + " and None; give both or neither");
  }
  if (!squeeze_weight.has_value()) return std::nullopt;
  return ExciteTensors{*squeeze_weight, squeeze_bias, *excite_weight, excite_bias};
}

// The problem that the arguments describe, checked.
BlockProblem block_problem(const TensorView& input, const BlockTensors& tensors,
                           const BlockOptions& options) {
  const TensorView expand(tensors.expand), depthwise(tensors.depthwise), project(tensors.project);
  const struct {
    const char* name;
    const TensorView& weight;
    const char* bias_name;
    const std::optional<Tensor>& bias;
  } layers[] = {{"expand_weight", expand, "expand_bias", tensors.expand_bias},
                {"depthwise_weight", depthwise, "depthwise_bias", tensors.depthwise_bias},
                {"project_weight", project, "project_bias", tensors.project_bias}};
  BlockProblem problem;
  problem.dtype = require_image("input", input);
  for (const auto& [name, weight, bias_name, bias] : layers) {
    require_image(name, weight);
    require_like(name, weight, "input", input);
    if (bias.has_value()) {
      require_like(bias_name, TensorView(*bias), "input", input);
      require_size(bias_name, TensorView(*bias), {weight.size(0)});
    }
  }
  problem.activation = parse_activation(options.activation);
  problem.output_activation = parse_activation(options.output_activation);
  problem.has_residual = options.residual;
  problem.batch = input.size(0), problem.channels = input.size(1);
  problem.height = input.size(2), problem.width = input.size(3);
  problem.expanded_channels = expand.size(0), problem.out_channels = project.size(0);
  problem.expand_filter = expand.size(2), problem.expand_stride = options.expand_stride;
  problem.filter = depthwise.size(2), problem.stride = options.stride;
  // Of what most blocks have kernels read pixels, all their channels together.
  const bool is_first = problem.expand_filter > 1;
  problem.layout = is_first && !input.is_dense(Layout::nhwc) ? Layout::nchw : Layout::nhwc;
  require_size("expand_weight", expand,
               {problem.expanded_channels, problem.channels, problem.expand_filter, problem.expand_filter});
  require_size("depthwise_weight", depthwise, {problem.expanded_channels, 1, problem.filter, problem.filter});
  require_size("project_weight", project, {problem.out_channels, problem.expanded_channels, 1, 1});
  problem.squeeze_activation = parse_activation(options.squeeze_activation);
  problem.gate = parse_gate(options.gate);
  if (tensors.excitation.has_value()) {
    problem.squeezed_channels = require_excitation(*tensors.excitation, input, problem.expanded_channels);
  }
  validate_and_size(problem);
  return problem;
}

Tensor by_layers(const BlockProblem& p, const Tensor& input, const BlockTensors& tensors,
                 const BlockOptions& options, int64_t tf32) {
  const std::vector<int64_t> one = {1, 1}, none = {0, 0, 0, 0};
  const std::vector<int64_t> expand_stride = {p.expand_stride, p.expand_stride};
  const std::vector<int64_t> expand_padding(4, p.expand_filter / 2);
  const std::vector<int64_t> stride = {p.stride, p.stride}, padding(4, p.filter / 2);
  const Text algorithm("auto");
  const Tensor expanded = conv2d(input, tensors.expand, tensors.expand_bias, expand_stride, expand_padding,
                                 one, 1, options.activation, algorithm, tf32, {}, {}, {}, false);
  Tensor filtered = conv2d(expanded, tensors.depthwise, tensors.depthwise_bias, stride, padding, one,
                           p.expanded_channels, options.activation, algorithm, tf32, {}, {}, {}, false);
  if (tensors.excitation.has_value()) {
    filtered =
        excited(filtered, *tensors.excitation, options.squeeze_activation, options.gate, algorithm, tf32);
  }
  const std::optional<Tensor> residual = p.has_residual ? std::optional<Tensor>(input) : std::nullopt;
  return conv2d(filtered, tensors.project, tensors.project_bias, one, none, one, 1, options.output_activation,
                algorithm, tf32, {}, residual, {}, true);
}

// Tensors that are dense as kernels read them, kept while their addresses are used.
struct DenseWeights {
  explicit DenseWeights(const BlockTensors& tensors)
      : kept{in_nchw(tensors.expand), in_nchw(tensors.depthwise), in_nchw(tensors.project)} {
    const std::optional<Tensor>* const given[] = {&tensors.expand_bias, &tensors.depthwise_bias,
                                                  &tensors.project_bias};
    for (int i = 0; i < 3; ++i) biases[i] = contiguous(*given[i]);
    weights.expand = kept[0].const_data_ptr(), weights.expand_bias = pointer_of(biases[0]);
    weights.depthwise = kept[1].const_data_ptr(), weights.depthwise_bias = pointer_of(biases[1]);
    weights.project = kept[2].const_data_ptr(), weights.project_bias = pointer_of(biases[2]);
    if (tensors.excitation.has_value()) {
      weights.excitation = excitation.emplace(*tensors.excitation).weights;
    }
  }
  Tensor kept[3];
  std::optional<Tensor> biases[3];
  std::optional<DenseExcitation> excitation;
  BlockWeights weights;
};

Tensor run_block(const Tensor& input, const Tensor& expand_weight, const std::optional<Tensor>& expand_bias,
                 const Tensor& depthwise_weight, const std::optional<Tensor>& depthwise_bias,
                 const Tensor& project_weight, const std::optional<Tensor>& project_bias,
                 const std::optional<Tensor>& squeeze_weight, const std::optional<Tensor>& squeeze_bias,
                 const std::optional<Tensor>& excite_weight, const std::optional<Tensor>& excite_bias,
                 int64_t expand_stride, int64_t stride, const Text& activation,
                 const Text& squeeze_activation, const Text& gate, const Text& output_activation,
                 bool residual, const Text& algorithm, int64_t tf32,
                 const std::optional<Tensor>& packed_weight) {
  const TensorView view(input);
  const auto inner = excitation(squeeze_weight, squeeze_bias, excite_weight, excite_bias);
  const BlockTensors tensors{expand_weight, expand_bias, depthwise_weight, depthwise_bias, project_weight,
                             project_bias,  inner};
  const BlockOptions options{expand_stride,     stride,  activation, squeeze_activation, gate,
                             output_activation, residual};
  const BlockProblem problem = block_problem(view, tensors, options);
  const DeviceScope scope(view.device_index);
  const auto plan = plan_for(problem, device_traits(view.device_index), algorithm);
  const Layout layout = result_layout(view, TensorView(expand_weight));
  if (plan->method == &inverted_residual::native) {
    return in_layout(by_layers(problem, input, tensors, options, tf32), layout);
  }
  const Tensor dense_input = dense(input, view, problem.layout);
  const Sizes sizes = {problem.batch, problem.out_channels, problem.out_height, problem.out_width};
  Tensor result = allocate(sizes, Layout::nhwc, view);
  Pointers pointers;
  pointers.input = dense_input.const_data_ptr();
  pointers.result = result.mutable_data_ptr();
  if (packed_weight.has_value()) {
    require_packed(TensorView(*packed_weight), *plan, view);
    pointers.packed_weight = packed_weight->const_data_ptr();
    run(*plan, problem, pointers, view);
  } else {
    const DenseWeights dense_weights(tensors);
    pointers.weight = &dense_weights.weights;
    run(*plan, problem, pointers, view);
  }
  return in_layout(result, layout);
}

// What inverted_residual takes as packed_weight with the same arguments; empty where it is a convolution
// after the other.
Tensor pack_block(const Tensor& input, const Tensor& expand_weight, const std::optional<Tensor>& expand_bias,
                  const Tensor& depthwise_weight, const std::optional<Tensor>& depthwise_bias,
                  const Tensor& project_weight, const std::optional<Tensor>& project_bias,
                  const std::optional<Tensor>& squeeze_weight, const std::optional<Tensor>& squeeze_bias,
                  const std::optional<Tensor>& excite_weight, const std::optional<Tensor>& excite_bias,
                  int64_t expand_stride, int64_t stride, const Text& activation,
                  const Text& squeeze_activation, const Text& gate, const Text& output_activation,
                  bool residual, const Text& algorithm) {
  const TensorView view(input);
  const auto inner = excitation(squeeze_weight, squeeze_bias, excite_weight, excite_bias);
  const BlockTensors tensors{expand_weight, expand_bias, depthwise_weight, depthwise_bias, project_weight,
                             project_bias,  inner};
  const BlockOptions options{expand_stride,     stride,  activation, squeeze_activation, gate,
                             output_activation, residual};
  const BlockProblem problem = block_problem(view, tensors, options);
  const DeviceScope scope(view.device_index);
  const auto plan = plan_for(problem, device_traits(view.device_index), algorithm);
  const DenseWeights dense_weights(tensors);
  Tensor packed = pack(*plan, problem, &dense_weights.weights, view);
  if (!plan->packing.empty()) complete_packing(view.device_index);
  return packed;
}

}  // namespace
}  // namespace convx

STABLE_TORCH_LIBRARY_IMPL(convx, CONVX_DISPATCH_KEY, library) {
  library.impl("inverted_residual", TORCH_BOX(&convx::run_block));
  library.impl("pack_inverted_residual", TORCH_BOX(&convx::pack_block));
}
