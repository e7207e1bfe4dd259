// convx._front: how calls reach kernels without Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "front/calls.h"
#include "front/chain.h"
#include "front/derivatives.h"
#include "front/layer_type.h"
#include "front/whole_network.h"

namespace py = pybind11;
using convx::front::Chain;
using convx::front::Link;
using convx::front::WholeNetwork;

PYBIND11_MODULE(_front, module) {
  module.doc() = "The way from a layer to a kernel without Python, for the torch that it was built beside.";
  module.attr("LayerCalls") = convx::front::layer_calls_type();
  py::class_<Link, std::shared_ptr<Link>>(module, "Link", "The call of a layer or a block, prepared.")
      .def_property_readonly("is_torchs", &Link::is_torchs);
  py::class_<Chain, std::shared_ptr<Chain>>(module, "Chain",
                                            "Prepared calls of layers that follow one another.")
      .def(py::init([](std::vector<std::shared_ptr<Link>> links,
                       const std::vector<std::pair<int64_t, int64_t>>& reads, int64_t given,
                       std::vector<int64_t> outputs, bool by_image) {
        std::vector<Chain::Reads> read;
        for (const auto& [input, residual] : reads) read.push_back({input, residual});
        return Chain(std::move(links), std::move(read), given, std::move(outputs), by_image);
      }))
      .def_property_readonly("bytes", &Chain::bytes)
      .def("run", &Chain::run, py::call_guard<py::gil_scoped_release>());
  py::class_<WholeNetwork>(module, "WholeNetwork", "A network that is one chain.")
      .def(py::init<std::shared_ptr<Chain>, const at::Tensor&, at::Tensor, py::list, const py::object&>())
      .def("run", &WholeNetwork::run);
  module.def("convolution_link", &convx::front::convolution_link);
  module.def("block_link", &convx::front::block_link);
  module.def("mean_link", &convx::front::mean_link);
  module.def("plane_means", &convx::front::plane_means);
  using convx::front::PoolingAsked;
  using Two = std::array<int64_t, 2>;
  py::class_<PoolingAsked>(module, "Pooling", "What a pooling of planes is like.")
      .def(py::init([](std::string kind, Two filter, Two stride, Two padding, Two dilation, bool ceil_mode,
                       bool counts_padding, int64_t divisor) {
        return PoolingAsked{std::move(kind), filter,    stride,         padding,
                            dilation,        ceil_mode, counts_padding, divisor};
      }));
  module.def("pooled_link", &convx::front::pooled_link);
  module.def("pooled", &convx::front::pooled);
  module.def("norm_link", &convx::front::norm_link);
  module.def("channel_norm", &convx::front::channel_norm);
  module.def("moved_link", &convx::front::moved_link);
  module.def("moved_channels", &convx::front::moved_channels);
  module.def("linear_link", &convx::front::linear_link);
  module.def("conv2d", &convx::front::conv2d);
  module.def("conv2d_gradient", &convx::front::conv2d_gradient);
  module.def("register_derivative", &convx::front::register_derivative);
  module.def("state_of", &convx::front::state_of);
  module.def("forget_plans", &convx::front::forget_plans);
  module.def("forget_weights", &convx::front::forget_weights);
}
