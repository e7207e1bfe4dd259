// The derivative of a prepared call: one node, which keeps no more than its gradients need.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "front/engine.h"
#include "front/operators.h"

namespace convx::front {
namespace {

namespace compiled = torch::dynamo::autograd;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

struct Saved {
  Tensor input, weight, result;  // undefined where no gradient needs it
};

Tensor before_activation(Activation activation, const Tensor& grad, const Tensor& result) {
  if (activation == Activation::relu) return at::threshold_backward(grad, result, 0);
  if (activation == Activation::relu6) return at::hardtanh_backward(grad, result, 0, 6);
  return grad;
}

// At the sums, in the layout of the result, once for all gradients.
Tensor sums_grad(const Prepared& p, const Tensor& grad, const Tensor& result) {
  const auto format = p.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return before_activation(p.activation, grad, result).contiguous(format);
}

// By this call's own plans where nothing records or looks at what is done.
bool is_plain(const Prepared& p, const Tensor& grad) {
  const auto tf32 = tf32_setting(grad);
  return !at::GradMode::is_enabled() && is_usual() && is_usual(grad) && tf32 && *tf32 == p.tf32;
}

Tensor bias_grad(const Prepared& p, const Tensor& grad) {
  static constexpr std::array<int64_t, 3> kPixels = {0, 2, 3};
  return grad.sum(at::IntArrayRef(kPixels).slice(0, p.weight_sizes.size() - 1));
}

variable_list plain_gradients(const Prepared& p, const Tensor& grad, const Saved& saved, int wanted) {
  variable_list found(3);
  int by_torch = 0;  // in one call
  if ((wanted & kInput) && p.input_grad.by == By::torch) by_torch |= kInput;
  if ((wanted & kWeight) && p.weight_grad.by == By::torch) by_torch |= kWeight;
  if (by_torch != 0) {
    by_torch |= wanted & kBias;
    std::tie(found[0], found[1], found[2]) =
        run_torchs_backward(p, grad, saved.input, saved.weight, by_torch);
  }
  const int rest = wanted & ~by_torch;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (rest & kInput) {
    found[0] = p.input_grad.by == By::kernel ? run_input_grad(p, grad, saved.weight)
                                             : conv2d_input_grad(p, grad, saved.weight);
  }
  if (rest & kWeight) {
    found[1] = p.weight_grad.by == By::kernel ? run_weight_grad(p, saved.input, grad)
                                              : conv2d_weight_grad(p, saved.input, grad);
  }
  if (rest & kBias) found[2] = bias_grad(p, grad);
  return found;
}

// For whoever records or traces: each operator has a derivative and a fake of its own.
variable_list gradients_by_operators(const Prepared& p, const Tensor& grad, const Saved& saved, int wanted) {
  variable_list found(3);
  if (wanted & kInput) found[0] = conv2d_input_grad(p, grad, saved.weight);
  if (wanted & kWeight) found[1] = conv2d_weight_grad(p, saved.input, grad);
  if (wanted & kBias) found[2] = bias_grad(p, grad);
  return found;
}

// What compiled autograd records of a call, in terms that its graphs can hold.
struct Record {
  std::vector<int64_t> stride, padding, dilation, input_sizes, weight_sizes;
  int64_t groups, tf32, activation, wanted;
  bool channels_last;
  std::string algorithm;

  Record(const Prepared& p, int wanted)
      : stride(p.geometry.stride.begin(), p.geometry.stride.end()),
        padding(p.geometry.padding.begin(), p.geometry.padding.end()),
        dilation(p.geometry.dilation.begin(), p.geometry.dilation.end()),
        input_sizes(p.input_sizes.begin(), p.input_sizes.end()),
        weight_sizes(p.weight_sizes.begin(), p.weight_sizes.end()),
        groups(p.geometry.groups),
        tf32(p.tf32),
        activation(static_cast<int64_t>(p.activation)),
        wanted(wanted),
        channels_last(p.channels_last),
        algorithm(p.algorithm_of_gradients) {}

  explicit Record(compiled::PackedArgs& packed) {
    visit([&packed](auto& each) { each = packed.unpack<std::decay_t<decltype(each)>>(); });
  }

  template <class Visitor>
  void visit(Visitor&& visitor) {
    visitor(stride), visitor(padding), visitor(dilation), visitor(input_sizes), visitor(weight_sizes);
    visitor(groups), visitor(tf32), visitor(activation), visitor(wanted);
    visitor(channels_last), visitor(algorithm);
  }

  // As far as gradients by the operators look at it.
  Prepared prepared() const {
    Prepared p;
    std::copy_n(stride.begin(), 2, p.geometry.stride.begin());
    std::copy_n(padding.begin(), 4, p.geometry.padding.begin());
    std::copy_n(dilation.begin(), 2, p.geometry.dilation.begin());
    p.geometry.groups = groups;
    p.input_sizes.assign(input_sizes.begin(), input_sizes.end());
    p.weight_sizes.assign(weight_sizes.begin(), weight_sizes.end());
    p.tf32 = tf32;
    p.activation = static_cast<Activation>(activation);
    p.channels_last = channels_last;
    p.algorithm_of_gradients = algorithm;
    return p;
  }
};

std::vector<at::TypePtr> recorded_types(Record record) {
  std::vector<at::TypePtr> types(3, compiled::IValuePacker<Tensor>::packed_type());
  record.visit([&types](auto& each) {
    types.push_back(compiled::IValuePacker<std::decay_t<decltype(each)>>::packed_type());
  });
  return types;
}

variable_list recorded_gradients(const variable_list& grads, const std::vector<c10::IValue>& arguments) {
  if (!grads[0].defined()) return variable_list(3);
  compiled::PackedArgs packed(arguments);
  Saved saved;
  for (Tensor* each : {&saved.input, &saved.weight, &saved.result}) *each = packed.unpack<Tensor>();
  const Record record(packed);
  const Prepared p = record.prepared();
  return gradients_by_operators(p, sums_grad(p, grads[0], saved.result), saved,
                                static_cast<int>(record.wanted));
}

class ConvxBackward : public torch::autograd::Node {
 public:
  ConvxBackward(c10::intrusive_ptr<Prepared> prepared, const Tensor& input, const Tensor& weight,
                const std::optional<Tensor>& bias)
      : Node(torch::autograd::collect_next_edges(input, weight, bias ? *bias : Tensor())),
        prepared_(std::move(prepared)) {
    if (prepared_->wanted & kWeight) input_ = SavedVariable(input, false);
    if (prepared_->wanted & kInput) weight_ = SavedVariable(weight, false);
  }

  // After its history is set: it is this node's own.
  void save_result(const Tensor& result) {
    if (prepared_->activation != Activation::none) result_ = SavedVariable(result, true);
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return variable_list(3);
    const Prepared& p = *prepared_;
    const int wanted = wanted_now();
    const Saved saved = unpacked();
    const Tensor grad = sums_grad(p, grads[0], saved.result);
    return is_plain(p, grad) ? plain_gradients(p, grad, saved, wanted)
                             : gradients_by_operators(p, grad, saved, wanted);
  }

  std::string name() const override { return "ConvxBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* each : {&input_, &weight_, &result_}) each->reset_data();
  }

  void compiled_args(compiled::CompiledNodeArgs& arguments) const override {
    arguments.collect(input_, false);
    arguments.collect(weight_, false);
    arguments.collect(result_, true);
    Record(*prepared_, wanted_now()).visit([&arguments](auto& each) { arguments.collect(each); });
  }

  variable_list apply_with_saved(const variable_list& grads, compiled::SwapSavedVariables& swap) override {
    for (SavedVariable* each : {&input_, &weight_, &result_}) swap.before(*each);
    compiled::PackedArgs packed;
    const Saved saved = unpacked();
    for (const Tensor* each : {&saved.input, &saved.weight, &saved.result}) packed.pack(*each);
    Record record(*prepared_, wanted_now());
    record.visit([&packed](auto& each) { packed.pack(each); });
    const auto& compiler = compiled::getPyCompilerInterface();
    const std::string bound = compiler->bind_function(swap.get_py_compiler(), name(), recorded_gradients,
                                                      recorded_types(record), /*is_custom_function=*/true);
    const auto metadata =
        compiled::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            compiled::get_input_metadata(next_edges()));
    variable_list found = compiler->call_function(swap.get_py_compiler(), "apply_functional", bound, grads,
                                                  packed.vec(), metadata);
    for (SavedVariable* each : {&input_, &weight_, &result_}) swap.after(*each);
    return found;
  }

 private:
  // Of the gradients that the call was prepared for, those that this backward pass asks for.
  int wanted_now() const {
    int wanted = 0;
    for (const size_t each : {0, 1, 2}) wanted |= task_should_compute_output(each) ? 1 << each : 0;
    return wanted & prepared_->wanted;
  }

  Saved unpacked() { return {input_.unpack(), weight_.unpack(), result_.unpack(getptr())}; }

  c10::intrusive_ptr<Prepared> prepared_;
  SavedVariable input_, weight_, result_;
};

// Held as torch holds its nodes: newer ones count by themselves.
template <class Node>
auto held(Node* node) {
  using Holder = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Holder, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<Node>(node, [](auto* each) { deleteNode(each); });
  } else {
    return c10::intrusive_ptr<Node>::unsafe_steal_from_new(node);
  }
}

Tensor recorded(const c10::intrusive_ptr<Prepared>& prepared, const Tensor& input, const Tensor& weight,
                const std::optional<Tensor>& bias) {
  const auto node = held(new ConvxBackward(prepared, input, weight, bias));
  const Tensor result = run_forward(*prepared, input, weight, bias, {});
  torch::autograd::set_history(result, node);
  node->save_result(result);
  return result;
}

}  // namespace

Tensor convolve(const c10::intrusive_ptr<Prepared>& prepared, const Tensor& input, const Tensor& weight,
                const std::optional<Tensor>& bias, const Tensor& packed) {
  const Prepared& p = *prepared;
  const Tensor result = p.is_torchs     ? run_torchs(p, input, weight, bias)
                        : p.wanted == 0 ? run_forward(p, input, weight, bias, packed)
                                        : recorded(prepared, input, weight, bias);
  return activate(result, p.after);
}

}  // namespace convx::front
