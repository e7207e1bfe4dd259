// A classifier behind the means, by torch: it spares a call from Python.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "front/calls.h"
#include "front/link.h"

namespace py = pybind11;

namespace convx::front {
namespace {

class LinearLink : public Link {
 public:
  LinearLink(const Tensor& input, Tensor weight, std::optional<Tensor> bias, const KernelLibrary& of)
      : weight_(std::move(weight)), bias_(std::move(bias)) {
    read(input, of);
    result_sizes = {input.size(0), weight_.size(0)};
  }

  bool is_torchs() const override { return true; }
  Tensor run(const Tensor& input) const override { return at::linear(input, weight_, bias_); }

 private:
  Tensor weight_;
  std::optional<Tensor> bias_;
};

}  // namespace

py::object linear_link(py::handle input_object, py::handle weight, py::handle bias) {
  const Tensor& input = THPVariable_Unpack(input_object.ptr());
  const std::optional<Operands> operands = usual_operands(input_object, weight, bias);
  const KernelLibrary* const library = find_library(false);
  const bool is_matrix = input.dim() == 2 && input.is_cpu() && input.is_contiguous();
  if (library == nullptr || !is_matrix || !operands || operands->key.wanted != 0 || operands->key.autocast) {
    return py::none();
  }
  return py::cast(std::shared_ptr<Link>(new LinearLink(input, operands->weight, operands->bias, *library)));
}

}  // namespace convx::front
