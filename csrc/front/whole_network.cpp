#include "front/whole_network.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "front/calls.h"

namespace py = pybind11;

namespace convx::front {

WholeNetwork::WholeNetwork(std::shared_ptr<Chain> chain, const Tensor& input, Tensor memory, py::list weights,
                           const py::object& lock)
    : chain_(std::move(chain)),
      memory_(std::move(memory)),
      weights_(std::move(weights)),
      acquire_(lock.attr("acquire")),
      release_(lock.attr("release")),
      sizes_(input.sizes()),
      strides_(input.strides()),
      weights_state_(state_of(weights_)),
      plans_(plans_forgotten()),
      threads_(at::get_num_threads()),
      grad_mode_(at::GradMode::is_enabled()) {}

bool WholeNetwork::is_for(const Tensor& input) const {
  const bool is_like =
      input.sizes() == at::IntArrayRef(sizes_) && input.strides() == at::IntArrayRef(strides_);
  const bool is_now = plans_ == plans_forgotten() && threads_ == at::get_num_threads() &&
                      grad_mode_ == at::GradMode::is_enabled();
  return is_like && is_now && !at::autocast::is_autocast_enabled(at::kCPU);
}

py::object WholeNetwork::run(py::handle input) const {
  if (!THPVariable_CheckExact(input.ptr())) return py::none();
  const Tensor& tensor = THPVariable_Unpack(input.ptr());
  if (!is_for(tensor)) return py::none();
  try {
    if (weights_state_ != state_of(weights_)) return py::none();
  } catch (const std::exception&) {  // of new ones that count no writes
    return py::none();
  }
  if (!py::cast<bool>(acquire_(false))) return py::none();
  std::optional<std::vector<Tensor>> found;
  try {
    const py::gil_scoped_release others;
    found = chain_->run({tensor}, memory_);
  } catch (...) {
    release_();
    throw;
  }
  release_();
  return found ? py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(found->front()))) : py::none();
}

}  // namespace convx::front
