#include "front/link.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <stdexcept>

#include "front/calls.h"
#include "problem/block_problem.h"

namespace py = pybind11;

namespace convx::front {
namespace {

at::MemoryFormat format_of(Layout layout) {
  return layout == Layout::nhwc ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// In either layout.
bool are_dense_images(const Tensor& tensor) {
  return is_usual() && is_usual(tensor) && tensor.dim() == 4 && tensor.numel() > 0 &&
         (tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
}

class ConvolutionLink : public Link {
 public:
  ConvolutionLink(c10::intrusive_ptr<Prepared> made, const Operands& operands, bool adds, Tensor filters)
      : prepared_(std::move(made)), packed_(std::move(filters)) {
    const Prepared& p = *prepared_;
    input_sizes = p.input_sizes, result_sizes = p.result_sizes;
    input_format = result_format = front::format_of(p);
    options = operands.input.options();
    adds_residual = adds;
    if (adds) residual_sizes = result_sizes;
    library = p.library;
    // As the kernels read them, for as long as the weights stay as they are: the caller looks.
    weight_ = p.reads_weight(packed_.defined())
                  ? front::dense(*library, operands.weight, at::MemoryFormat::Contiguous)
                  : operands.weight;
    if (operands.bias) bias_ = operands.bias->contiguous();
  }

  bool is_torchs() const override { return prepared_->forward.by == By::torch; }

  Tensor run(const Tensor& input) const override {
    const auto bias = bias_.defined() ? std::optional<Tensor>(bias_) : std::nullopt;
    return run_forward(*prepared_, input, weight_, bias, {});
  }

  void launch(Pointers pointers) const override {
    pointers.weight = weight_.const_data_ptr();
    pointers.epilogue.bias = bias_.defined() ? bias_.const_data_ptr() : nullptr;
    front::launch(*prepared_, prepared_->forward, pointers, weight_, packed_);
  }

 private:
  c10::intrusive_ptr<Prepared> prepared_;
  Tensor weight_, bias_, packed_;  // bias and packed undefined without
};

class BlockLink : public Link {
 public:
  BlockLink(const KernelLibrary& of, const BlockProblem& problem, std::shared_ptr<const Plan> plan,
            Tensor packed)
      : problem_(problem), plan_(std::move(plan)), packed_(std::move(packed)) {
    const BlockProblem& p = problem_;
    input_sizes = {p.batch, p.channels, p.height, p.width};
    result_sizes = {p.batch, p.out_channels, p.out_height, p.out_width};
    input_format = format_of(p.layout), result_format = at::MemoryFormat::ChannelsLast;
    library = &of;
  }

  void launch(Pointers pointers) const override {
    const Tensor workspace = add_workspace(*plan_, packed_.options(), pointers);
    pointers.packed_weight = packed_.const_data_ptr();
    library->launch_block(*plan_, problem_, pointers, packed_.device().index());
  }

 private:
  BlockProblem problem_;
  std::shared_ptr<const Plan> plan_;
  Tensor packed_;
};

}  // namespace

Tensor Link::run(const Tensor& /*input*/) const {
  throw std::logic_error("convx: this link is launched: it is none of torch's");
}

void Link::launch(Pointers /*pointers*/) const {
  throw std::logic_error("convx: this link is run: it is torch's");
}

Tensor Link::launched(const Tensor& input, const Tensor* second) const {
  Tensor result = at::empty(result_sizes, options, result_format);
  Pointers pointers;
  pointers.input = input.const_data_ptr(), pointers.result = result.mutable_data_ptr();
  if (second != nullptr) pointers.epilogue.residual = second->const_data_ptr();
  launch(pointers);
  return result;
}

void Link::read(const Tensor& input, const KernelLibrary& of) {
  input_sizes = input.sizes();
  if (!input.is_contiguous()) input_format = at::MemoryFormat::ChannelsLast;
  options = input.options();
  library = &of;
}

Tensor Link::dense(const Tensor& tensor) const {
  return front::dense(*library, tensor, input_format);
}

const KernelLibrary* library_of_images(const Tensor& images) {
  const bool is_plain = images.is_cpu() && images.scalar_type() == at::kFloat;
  return is_plain && are_dense_images(images) ? find_library(false) : nullptr;
}

const KernelLibrary* gpu_library_of_images(const Tensor& images) {
  const bool is_plain = images.is_cuda() && dtype_of(images);
  return is_plain && are_dense_images(images) ? find_library(true) : nullptr;
}

py::object convolution_link(py::handle input, py::handle weight, py::handle bias, py::handle residual,
                            bool residual_after_activation, const std::array<int64_t, 2>& stride,
                            const std::array<int64_t, 4>& padding, const std::array<int64_t, 2>& dilation,
                            int64_t groups, const std::string& activation, const std::string& algorithm,
                            py::handle packed) {
  const std::optional<Operands> operands = usual_operands(input, weight, bias);
  if (!operands || operands->key.wanted != 0 || operands->key.autocast) return py::none();
  const bool adds = !residual.is_none();
  Asked asked = {
      {stride, padding, dilation, groups}, parse_activation(activation), algorithm, Residual::none};
  if (adds) asked.residual = residual_after_activation ? Residual::after : Residual::before;
  const auto made =
      prepare(operands->input, operands->weight, operands->bias, asked, 0, packed.is_none(), false);
  if (!made || made->backend != Backend::cpu) return py::none();
  const Prepared& p = *made;
  const at::MemoryFormat format = front::format_of(p);
  if (!operands->input.is_contiguous(format)) return py::none();
  if (p.forward.by != By::kernel && (p.forward.by != By::torch || adds)) return py::none();
  if (p.forward.plan->finishes_apart || p.after != Activation::none) return py::none();
  if (adds) {
    const Tensor& added = THPVariable_Unpack(residual.ptr());
    const bool is_like = added.sizes() == at::IntArrayRef(p.result_sizes) &&
                         added.dtype() == operands->input.dtype() && added.is_contiguous(format);
    if (!is_like) return py::none();
  }
  Tensor filters;
  if (!packed.is_none()) filters = THPVariable_Unpack(packed.ptr());
  if (p.packs() && !filters.defined()) return py::none();
  return py::cast(std::shared_ptr<Link>(new ConvolutionLink(made, *operands, adds, std::move(filters))));
}

py::object block_link(py::handle input_object, const py::capsule& problem, const std::string& algorithm,
                      py::handle packed) {
  const Tensor& input = THPVariable_Unpack(input_object.ptr());
  const KernelLibrary* const library = find_library(false);
  if (!input.is_cpu() || library == nullptr || !is_usual() || !is_usual(input)) return py::none();
  if (problem.name() == nullptr || std::strcmp(problem.name(), kBlockCapsule) != 0) {
    throw std::invalid_argument("problem is BlockProblem.handed_over()");
  }
  const BlockProblem& p = *problem.get_pointer<const BlockProblem>();
  auto link = std::make_shared<BlockLink>(*library, p, plan_for(p, library->device(-1), algorithm),
                                          THPVariable_Unpack(packed.ptr()));
  link->options = input.options();
  if (!input.is_contiguous(link->input_format)) return py::none();
  return py::cast(std::shared_ptr<Link>(std::move(link)));
}

}  // namespace convx::front
