// Layer norm of channels between convolutions, as ConvNeXt has it.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "front/calls.h"
#include "front/link.h"
#include "problem/norm_problem.h"

namespace py = pybind11;

namespace convx::front {
namespace {

class NormLink : public Link {
 public:
  NormLink(const Tensor& input, std::optional<Tensor> weight, std::optional<Tensor> bias, double eps,
           const KernelLibrary& of)
      : weight_(std::move(weight)), bias_(std::move(bias)) {
    read(input, of);
    input_format = result_format = at::MemoryFormat::ChannelsLast;
    result_sizes = input_sizes;
    problem_.pixels = input.size(0) * input.size(2) * input.size(3), problem_.channels = input.size(1);
    problem_.eps = static_cast<float>(eps);
    if (weight_) problem_.weight = weight_->const_data_ptr<float>();
    if (bias_) problem_.bias = bias_->const_data_ptr<float>();
  }

  void launch(Pointers pointers) const override {
    library->launch_norm(problem_, pointers, options.device().index());
  }

 private:
  std::optional<Tensor> weight_, bias_;
  NormProblem problem_;
};

bool is_usual_parameter(const std::optional<Tensor>& tensor, int64_t channels) {
  return !tensor || (is_usual(*tensor) && tensor->is_cpu() && tensor->scalar_type() == at::kFloat &&
                     tensor->is_contiguous() && tensor->sizes() == at::IntArrayRef{channels});
}

std::shared_ptr<NormLink> made(const Tensor& input, const std::optional<Tensor>& weight,
                               const std::optional<Tensor>& bias, double eps) {
  const KernelLibrary* const library = library_of_images(input);
  if (library == nullptr) return nullptr;
  const bool is_nhwc = input.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool are_usual = is_usual_parameter(weight, input.size(1)) && is_usual_parameter(bias, input.size(1));
  return is_nhwc && are_usual ? std::make_shared<NormLink>(input, weight, bias, eps, *library) : nullptr;
}

bool wants_gradient(const Tensor& input, const std::optional<Tensor>& weight,
                    const std::optional<Tensor>& bias) {
  const bool any =
      input.requires_grad() || (weight && weight->requires_grad()) || (bias && bias->requires_grad());
  return any && at::GradMode::is_enabled();
}

}  // namespace

py::object norm_link(const Tensor& input, const std::optional<Tensor>& weight,
                     const std::optional<Tensor>& bias, double eps) {
  if (wants_gradient(input, weight, bias)) return py::none();
  const std::shared_ptr<Link> link = made(input, weight, bias, eps);
  return link == nullptr ? py::none() : py::cast(link);
}

std::optional<Tensor> channel_norm(const Tensor& input, const std::optional<Tensor>& weight,
                                   const std::optional<Tensor>& bias, double eps) {
  if (wants_gradient(input, weight, bias)) return std::nullopt;
  const auto link = made(input, weight, bias, eps);
  return link == nullptr ? std::nullopt : std::optional<Tensor>(link->launched(input));
}

}  // namespace convx::front
