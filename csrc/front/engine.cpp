#include "front/engine.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "choose/first_call.h"
#include "choose/registry.h"
#include "front/operators.h"
#include "methods/native/native.h"

namespace convx::front {

std::optional<DType> dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    default:
      return std::nullopt;
  }
}

namespace {

Sizes sizes_of(const Tensor& image) {
  return {image.size(0), image.size(1), image.size(2), image.size(3)};
}

bool suggests_channels_last(const Tensor& tensor) {
  return tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

// Both sides alike: all that torch's convolution can do.
bool torch_pads(const Geometry& geometry) {
  return geometry.padding[0] == geometry.padding[1] && geometry.padding[2] == geometry.padding[3];
}

By by(const Plan& plan, const Geometry& geometry) {
  if (plan.method != &native::method) return By::kernel;
  return plan.kernel == native::kConvolution && torch_pads(geometry) ? By::torch : By::operators;
}

// Whether torch's convolution would take a pass of its own for the bias, where the library has a better one.
bool adds_bias_apart(const Prepared& prepared) {
  const ConvProblem& problem = prepared.forward.problem;
  return problem.epilogue.has_bias && !native::adds_bias(problem, prepared.backend);
}

// Where a step's kernel is to run, and whether it is to be chosen by measured times.
struct Place {
  const DeviceTraits& device;
  int index;
  bool measures;
};

Step step(const Prepared& prepared, ConvProblem problem, Operation operation, const std::string& algorithm,
          const Place& place) {
  problem.operation = operation;
  if (operation != Operation::forward) {
    problem.packs_each_call = false;
    problem.epilogue = {};
  }
  Step made;
  made.problem = problem;
  if (place.measures && algorithm == "auto") measure_first(problem, place.index);
  made.plan = plan_for(problem, place.device, algorithm);
  made.by = by(*made.plan, prepared.geometry);
  return made;
}

// Of images with these sizes.
ConvProblem problem_of(const Prepared& prepared, DType dtype, const Sizes& input, const Sizes& weight) {
  const Geometry& geometry = prepared.geometry;
  ConvProblem problem;
  problem.dtype = dtype;
  problem.layout = prepared.channels_last ? Layout::nhwc : Layout::nchw;
  set_tf32(problem, prepared.tf32);
  set_sizes(problem, input, weight, geometry.stride.data(), geometry.padding.data(), geometry.dilation.data(),
            geometry.groups);
  return problem;
}

// A gradient of torch's with the strides of the format, those of sizes of 1 too.
Tensor canonical(const Prepared& prepared, const Tensor& tensor) {
  const Tensor result = tensor.contiguous(format_of(prepared));
  const at::IntArrayRef strides = prepared.result_strides;
  return result.strides() == strides ? result : at::as_strided(result, result.sizes(), strides);
}

// The last one or two of the pairs, as torch's function of that rank takes them.
at::IntArrayRef axes(const std::array<int64_t, 2>& pair, int64_t rank) {
  return {pair.data() + (4 - rank), static_cast<size_t>(rank - 2)};
}

// torch's convolution, and what that does not do of the epilogue.
Tensor run_torchs_forward(const Prepared& prepared, const Tensor& input, const Tensor& weight,
                          const std::optional<Tensor>& bias) {
  ConvProblem left = prepared.forward.problem;
  if (!adds_bias_apart(prepared)) left.epilogue.has_bias = false;
  const bool apart = left.epilogue.has_bias;
  const Tensor sums = run_torchs(prepared, input, weight, apart ? std::nullopt : bias);
  const Tensor result = sums.contiguous(format_of(prepared));
  if (left.epilogue == Epilogue{}) return result;
  const Tensor values = apart ? bias->contiguous() : Tensor();
  EpiloguePointers pointers;
  pointers.bias = apart ? values.const_data_ptr() : nullptr;
  void* const memory = result.mutable_data_ptr();
  const bool is_done = prepared.library->finish(left, pointers, memory, input.device().index());
  return is_done ? result : activate(result, prepared.activation);
}

bool is_aligned(const KernelLibrary& library, const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % library.alignment == 0;
}

}  // namespace

at::MemoryFormat format_of(const Prepared& prepared) {
  return prepared.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

Tensor dense(const KernelLibrary& library, const Tensor& tensor, at::MemoryFormat format) {
  if (!tensor.is_contiguous(format)) return tensor.contiguous(format);
  return is_aligned(library, tensor) ? tensor : tensor.clone();
}

bool Prepared::keeps_filters(const Tensor& weight) const {
  return packs() || (forward.by == By::kernel && !(weight.is_contiguous() && is_aligned(*library, weight)));
}

Tensor add_workspace(const Plan& plan, const at::TensorOptions& bytes, Pointers& pointers) {
  if (plan.workspace_bytes == 0) return {};
  Tensor workspace = at::empty({plan.workspace_bytes}, bytes);
  pointers.workspace = workspace.mutable_data_ptr();
  return workspace;
}

// Workspace and filters may be given back when the launch is queued: torch's allocator orders their reuse by
// stream.
void launch(const Prepared& prepared, const Step& step, Pointers pointers, const Tensor& like,
            const Tensor& packed) {
  const Plan& plan = *step.plan;
  const auto bytes = like.options().dtype(at::kByte);
  const int index = like.device().index();
  const Tensor workspace = add_workspace(plan, bytes, pointers);
  Tensor filters = packed;
  if (plan.packing.empty()) {
    if (filters.defined()) pointers.weight = filters.const_data_ptr();
  } else {
    if (!filters.defined()) {
      filters = at::empty({plan.packed_weight_bytes}, bytes);
      prepared.library->pack_weight(plan, step.problem, pointers.weight, filters.mutable_data_ptr(), index);
      pointers.packed_just_now = true;
    }
    pointers.packed_weight = filters.const_data_ptr();
  }
  prepared.library->launch(plan, step.problem, pointers, index);
}

std::optional<int64_t> tf32_setting(const Tensor& input) {
  if (!input.is_cuda() || input.scalar_type() != at::kFloat) return 0;
  try {
    const at::Context& context = at::globalContext();
    return (context.allowTF32CuDNN() ? 1 : 0) + (context.allowTF32CuBLAS() ? 2 : 0);
  } catch (const c10::Error&) {  // set by fp32_precision, of which the older switches can't tell
    return std::nullopt;
  }
}

bool measures_first(const Tensor& input) {
  if (!at::globalContext().benchmarkCuDNN()) return false;
  const KernelLibrary* const library = find_library(input.is_cuda());
  return library != nullptr && !library->is_capturing(input.device().index());
}

int64_t products_setting() {
  try {
    return at::globalContext().allowTF32CuBLAS() ? 2 : 0;
  } catch (const c10::Error&) {
    return 2;
  }
}

bool is_usual() {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kUsual({DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView,
                                        DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA});
  const auto state = c10::impl::tls_local_dispatch_key_set();
  return kUsual.isSupersetOf(state.included_) && !at::impl::torch_function_mode_enabled();
}

bool is_usual(const Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kUsual({DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU,
                                        DispatchKey::AutogradCUDA, DispatchKey::ADInplaceOrView,
                                        DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA});
  return kUsual.isSupersetOf(tensor.key_set()) && !tensor._fw_grad(0).defined();
}

c10::intrusive_ptr<Prepared> prepare(const Tensor& input, const Tensor& weight,
                                     const std::optional<Tensor>& bias, const Asked& asked, int wanted,
                                     bool packs_each_call, bool measures) {
  const auto dtype = dtype_of(input);
  const auto tf32 = tf32_setting(input);
  const KernelLibrary* library = find_library(input.is_cuda());
  const int64_t rank = input.dim();
  if (!dtype || !tf32 || library == nullptr || (rank != 3 && rank != 4) || weight.dim() != rank ||
      input.size(0) == 0 || weight.dtype() != input.dtype() || weight.device() != input.device()) {
    return {};
  }
  if (bias && (bias->dtype() != input.dtype() || bias->device() != input.device() || bias->dim() != 1 ||
               bias->size(0) != weight.size(0))) {
    return {};
  }
  const Tensor image = rank == 4 ? input : input.unsqueeze(-2);
  const Tensor filters = rank == 4 ? weight : weight.unsqueeze(-2);
  auto made = c10::make_intrusive<Prepared>();
  const Activation activation = asked.activation;
  made->geometry = asked.geometry;
  made->algorithm = asked.algorithm;
  made->algorithm_of_gradients = algorithm_of_gradients(asked.algorithm);
  made->tf32 = *tf32;
  const bool fuses = wanted == 0 || activation == Activation::relu || activation == Activation::relu6;
  made->activation = fuses ? activation : Activation::none;
  made->after = fuses ? Activation::none : activation;
  made->wanted = wanted;
  made->library = library;
  made->channels_last = suggests_channels_last(image) || suggests_channels_last(filters);
  made->input_sizes = input.sizes();
  made->weight_sizes = weight.sizes();
  if (rank == 3 && made->channels_last) return {};

  ConvProblem p;
  try {
    p = problem_of(*made, *dtype, sizes_of(image), sizes_of(filters));
    p.epilogue.activation = made->activation;
    p.epilogue.has_bias = bias.has_value();
    p.epilogue.has_residual = asked.residual != Residual::none;
    p.epilogue.residual_after_activation = asked.residual == Residual::after;
    p.packs_each_call = packs_each_call;
    const int index = input.device().index();
    const Place place = {library->device(index), index, measures};
    made->backend = place.device.backend;
    made->forward = step(*made, p, Operation::forward, made->algorithm, place);
    if (wanted & kInput) {
      made->input_grad = step(*made, p, Operation::input_grad, made->algorithm_of_gradients, place);
    }
    if (wanted & kWeight) {
      made->weight_grad = step(*made, p, Operation::weight_grad, made->algorithm_of_gradients, place);
    }
  } catch (const InvalidArgument&) {  // the operators say what is wrong
    return {};
  }
  made->result_sizes = {p.batch, p.out_channels, p.out_height, p.out_width};
  if (rank == 3) made->result_sizes = {p.batch, p.out_channels, p.out_width};
  const auto all_by = [&](By who) {
    return made->forward.by == who && (!(wanted & kInput) || made->input_grad.by == who) &&
           (!(wanted & kWeight) || made->weight_grad.by == who);
  };
  made->is_torchs = all_by(By::torch) && made->activation == Activation::none &&
                    asked.residual == Residual::none && (wanted != 0 || !adds_bias_apart(*made));
  // The result of the operators would be a view of their image.
  if (rank == 3 && made->forward.by == By::operators) return {};
  return made;
}

c10::intrusive_ptr<Prepared> prepare_gradient(const Tensor& first, const Tensor& second, Wanted which,
                                              const Sizes& sizes, const Asked& asked, bool measures) {
  const auto dtype = dtype_of(first);
  const auto tf32 = tf32_setting(first);
  const KernelLibrary* library = find_library(first.is_cuda());
  if (!dtype || !tf32 || library == nullptr || first.dim() != 4 || second.dim() != 4 || first.size(0) == 0 ||
      second.dtype() != first.dtype() || second.device() != first.device()) {
    return {};
  }
  const bool of_input = which == kInput;
  const Sizes input = of_input ? sizes : sizes_of(first), weight = of_input ? sizes_of(second) : sizes;
  auto made = c10::make_intrusive<Prepared>();
  made->geometry = asked.geometry;
  made->algorithm_of_gradients = asked.algorithm;
  made->tf32 = *tf32;
  made->wanted = which;
  made->library = library;
  made->channels_last = suggests_channels_last(first) || suggests_channels_last(second);
  made->input_sizes.assign(input.begin(), input.end());
  made->weight_sizes.assign(weight.begin(), weight.end());
  try {
    const ConvProblem p = problem_of(*made, *dtype, input, weight);
    if (sizes_of(of_input ? first : second) != Sizes{p.batch, p.out_channels, p.out_height, p.out_width}) {
      return {};
    }
    const int index = first.device().index();
    const Place place = {library->device(index), index, measures};
    const Step found =
        step(*made, p, of_input ? Operation::input_grad : Operation::weight_grad, asked.algorithm, place);
    if (found.by == By::operators) return {};
    (of_input ? made->input_grad : made->weight_grad) = found;
    const auto meta = first.options().device(at::kMeta);
    made->result_strides = at::empty(sizes, meta, format_of(*made)).strides();
  } catch (const InvalidArgument&) {  // the operators say what is wrong
    return {};
  }
  return made;
}

Tensor run_torchs(const Prepared& prepared, const Tensor& input, const Tensor& weight,
                  const std::optional<Tensor>& bias) {
  const Geometry& g = prepared.geometry;
  const std::array<int64_t, 2> padding = {g.padding[0], g.padding[2]};
  const int64_t rank = input.dim();
  if (rank == 3) {
    return at::conv1d(input, weight, bias, axes(g.stride, rank), axes(padding, rank), axes(g.dilation, rank),
                      g.groups);
  }
  return at::conv2d(input, weight, bias, g.stride, padding, g.dilation, g.groups);
}

Tensor activate(const Tensor& sums, Activation activation) {
  switch (activation) {
    case Activation::none:
      return sums;
    case Activation::relu:
      return at::relu(sums);
    case Activation::relu6:
      return at::relu6(sums);
    case Activation::silu:
      return at::silu(sums);
    case Activation::hardswish:
      return at::hardswish(sums);
    case Activation::gelu:
      return at::gelu(sums);
  }
  return sums;
}

Tensor run_forward(const Prepared& prepared, const Tensor& input, const Tensor& weight,
                   const std::optional<Tensor>& bias, const Tensor& packed) {
  const at::AutoDispatchBelowADInplaceOrView below;
  if (prepared.forward.by == By::operators) return conv2d(prepared, input, weight, bias);
  const c10::DeviceGuard guard(input.device());
  if (prepared.forward.by == By::torch) return run_torchs_forward(prepared, input, weight, bias);
  const Tensor images = dense(*prepared.library, input, format_of(prepared));
  const bool reads_weight = prepared.reads_weight(packed.defined());
  const Tensor filters =
      reads_weight ? dense(*prepared.library, weight, at::MemoryFormat::Contiguous) : Tensor();
  const Tensor sums = bias ? bias->contiguous() : Tensor();
  Tensor result = at::empty(prepared.result_sizes, input.options(), format_of(prepared));
  Pointers pointers;
  pointers.input = images.const_data_ptr();
  pointers.weight = reads_weight ? filters.const_data_ptr() : nullptr;
  pointers.epilogue.bias = bias ? sums.const_data_ptr() : nullptr;
  pointers.result = result.mutable_data_ptr();
  launch(prepared, prepared.forward, pointers, images, packed);
  return result;
}

std::tuple<Tensor, Tensor, Tensor> run_torchs_backward(const Prepared& prepared, const Tensor& output_grad,
                                                       const Tensor& input, const Tensor& weight, int mask) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const Geometry& g = prepared.geometry;
  const std::array<int64_t, 2> padding = {g.padding[0], g.padding[2]}, none = {0, 0};
  const std::array<int64_t, 1> bias_sizes = {prepared.weight_sizes[0]};
  const int64_t rank = output_grad.dim();
  const auto given = [&](const Tensor& operand, const c10::DimVector& sizes) {
    return operand.defined() ? operand : at::empty(sizes, output_grad.options(), format_of(prepared));
  };
  return at::convolution_backward(output_grad, given(input, prepared.input_sizes),
                                  given(weight, prepared.weight_sizes), at::IntArrayRef(bias_sizes),
                                  axes(g.stride, rank), axes(padding, rank), axes(g.dilation, rank),
                                  /*transposed=*/false, axes(none, rank), g.groups,
                                  {(mask & kInput) != 0, (mask & kWeight) != 0, (mask & kBias) != 0});
}

Tensor run_input_grad(const Prepared& prepared, const Tensor& output_grad, const Tensor& weight) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(output_grad.device());
  const Tensor grad = dense(*prepared.library, output_grad, format_of(prepared));
  const Tensor filters = dense(*prepared.library, weight, at::MemoryFormat::Contiguous);
  Tensor result = at::empty(prepared.input_sizes, output_grad.options(), format_of(prepared));
  Pointers pointers;
  pointers.output_grad = grad.const_data_ptr();
  pointers.weight = filters.const_data_ptr();
  pointers.result = result.mutable_data_ptr();
  launch(prepared, prepared.input_grad, pointers, grad, {});
  return result;
}

Tensor run_weight_grad(const Prepared& prepared, const Tensor& input, const Tensor& output_grad) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::DeviceGuard guard(input.device());
  const Tensor images = dense(*prepared.library, input, format_of(prepared));
  const Tensor grad = dense(*prepared.library, output_grad, format_of(prepared));
  // In torch's order, which is also that of channels_last where one dimension has more than one.
  Tensor result = at::empty(prepared.weight_sizes, input.options(), format_of(prepared));
  Tensor filters = result.is_contiguous() ? result : at::empty(prepared.weight_sizes, input.options());
  Pointers pointers;
  pointers.input = images.const_data_ptr();
  pointers.output_grad = grad.const_data_ptr();
  pointers.result = filters.mutable_data_ptr();
  launch(prepared, prepared.weight_grad, pointers, images, {});
  return filters.is_same(result) ? result : filters.contiguous(format_of(prepared));
}

Tensor run_gradient(const Prepared& prepared, const Tensor& first, const Tensor& second) {
  const bool of_input = prepared.wanted == kInput;
  const Step& step = of_input ? prepared.input_grad : prepared.weight_grad;
  if (step.by == By::kernel) {
    return of_input ? run_input_grad(prepared, first, second) : run_weight_grad(prepared, first, second);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::MemoryFormat format = format_of(prepared);
  if (of_input) {
    const auto found = run_torchs_backward(prepared, first.contiguous(format), {}, second, kInput);
    return canonical(prepared, std::get<0>(found));
  }
  const auto found = run_torchs_backward(prepared, second.contiguous(format), first, {}, kWeight);
  return canonical(prepared, std::get<1>(found));
}

}  // namespace convx::front
