#include "front/derivatives.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>

namespace py = pybind11;

namespace convx::front {
namespace {

using torch::jit::Stack;

// Of a call whose arguments are the last ones of the stack.
bool asks_for_gradients(const Stack& stack, size_t arguments) {
  const bool records = c10::GradMode::is_enabled();
  return std::any_of(stack.end() - static_cast<ptrdiff_t>(arguments), stack.end(),
                     [records](const c10::IValue& each) {
                       if (!each.isTensor() || !each.toTensor().defined()) return false;
                       const at::Tensor& tensor = each.toTensor();
                       return (records && tensor.requires_grad()) || tensor._fw_grad(0).defined();
                     });
}

class Derivative : public c10::OperatorKernel {
 public:
  explicit Derivative(py::object in_python) : in_python_(in_python.release().ptr()) {
    py::object to_keyset = py::module_::import("torch._C").attr("DispatchKeySet").attr("from_raw_repr");
    to_keyset_ = to_keyset.release().ptr();
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) const {
    const size_t count = op.schema().arguments().size();
    if (!asks_for_gradients(*stack, count)) {
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
      return;
    }
    const py::gil_scoped_acquire python;
    py::tuple arguments(count + 1);
    arguments[0] = py::handle(to_keyset_)(keys.raw_repr());
    for (size_t i = 0; i < count; ++i) {
      arguments[i + 1] = torch::jit::toPyObject(torch::jit::peek(*stack, i, count));
    }
    const auto result = py::reinterpret_steal<py::object>(PyObject_CallObject(in_python_, arguments.ptr()));
    if (!result) throw python_error();
    torch::jit::drop(*stack, count);
    torch::jit::push(*stack, THPVariable_Unpack(result.ptr()));
  }

 private:
  // Kept: Python may be gone before the dispatcher.
  PyObject *in_python_, *to_keyset_;
};

}  // namespace

void register_derivative(const std::string& name, py::object derivative) {
  static auto& library =
      *new torch::Library(torch::Library::IMPL, "convx", c10::DispatchKey::Autograd, __FILE__, __LINE__);
  library.impl(name.c_str(),
               torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Derivative>(std::move(derivative))));
}

}  // namespace convx::front
