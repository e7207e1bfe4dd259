// The derivative of a prepared call: one node, which keeps no more than its gradients need.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "front/engine.h"
#include "front/operators.h"

namespace convx::front {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor before_activation(Activation activation, const Tensor& grad, const Tensor& result) {
  if (activation == Activation::relu) return at::threshold_backward(grad, result, 0);
  if (activation == Activation::relu6) return at::hardtanh_backward(grad, result, 0, 6);
  return grad;
}

// By this call's own plans where nothing records or looks at what is done.
bool is_plain(const Prepared& p, const Tensor& grad) {
  const auto tf32 = tf32_setting(grad);
  return !at::GradMode::is_enabled() && is_usual() && is_usual(grad) && tf32 && *tf32 == p.tf32;
}

Tensor bias_grad(const Prepared& p, const Tensor& grad) {
  static constexpr std::array<int64_t, 3> kPixels = {0, 2, 3};
  return grad.sum(at::IntArrayRef(kPixels).slice(0, p.result_sizes.size() - 1));
}

variable_list plain_gradients(const Prepared& p, const Tensor& grad, const Tensor& input,
                              const Tensor& weight) {
  variable_list found(4);
  int by_torch = 0;  // in one call
  if ((p.wanted & kInput) && p.input_grad.by == By::torch) by_torch |= kInput;
  if ((p.wanted & kWeight) && p.weight_grad.by == By::torch) by_torch |= kWeight;
  if (by_torch != 0) {
    by_torch |= p.wanted & kBias;
    std::tie(found[0], found[1], found[2]) = run_torchs_backward(p, grad, input, weight, by_torch);
  }
  const int rest = p.wanted & ~by_torch;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (rest & kInput) {
    found[0] =
        p.input_grad.by == By::kernel ? run_input_grad(p, grad, weight) : conv2d_input_grad(p, grad, weight);
  }
  if (rest & kWeight) {
    found[1] =
        p.weight_grad.by == By::kernel ? run_weight_grad(p, input, grad) : conv2d_weight_grad(p, input, grad);
  }
  if (rest & kBias) found[2] = bias_grad(p, grad);
  return found;
}

struct Conv2d : torch::autograd::Function<Conv2d> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, const c10::intrusive_ptr<Prepared>& prepared) {
    const Prepared& p = *prepared;
    Tensor result = run_forward(p, input, weight, bias, {});
    context->save_for_backward({p.wanted & kWeight ? input : Tensor(), p.wanted & kInput ? weight : Tensor(),
                                p.activation == Activation::none ? Tensor() : result});
    context->saved_data["prepared"] = c10::IValue::make_capsule(prepared);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto capsule = context->saved_data["prepared"].toCapsule();
    const Prepared& p = static_cast<const Prepared&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &result = saved[2];
    const auto format = p.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    Tensor grad = before_activation(p.activation, grads[0], result).contiguous(format);
    if (is_plain(p, grad)) return plain_gradients(p, grad, input, weight);
    variable_list found(4);
    if (p.wanted & kInput) found[0] = conv2d_input_grad(p, grad, weight);
    if (p.wanted & kWeight) found[1] = conv2d_weight_grad(p, input, grad);
    if (p.wanted & kBias) found[2] = bias_grad(p, grad);
    return found;
  }
};

}  // namespace

Tensor convolve(const c10::intrusive_ptr<Prepared>& prepared, const Tensor& input, const Tensor& weight,
                const std::optional<Tensor>& bias, const Tensor& packed) {
  const Prepared& p = *prepared;
  const Tensor result = p.is_torchs     ? run_torchs(p, input, weight, bias)
                        : p.wanted == 0 ? run_forward(p, input, weight, bias, packed)
                                        : Conv2d::apply(input, weight, bias, prepared);
  return activate(result, p.after);
}

}  // namespace convx::front
