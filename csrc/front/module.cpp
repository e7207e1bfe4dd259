// convx._front: how calls reach kernels without Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "front/derivatives.h"
#include "front/layer.h"

namespace py = pybind11;
using convx::front::LayerCalls;

PYBIND11_MODULE(_front, module) {
  module.doc() = "The way from a layer to a kernel without Python, for the torch that it was built beside.";
  py::class_<LayerCalls>(module, "LayerCalls", "What is known of a layer's calls.")
      .def(py::init<>())
      .def("__call__", &LayerCalls::call)
      .def("forget", &LayerCalls::forget)
      .def("kinds", &LayerCalls::kinds)
      .def("__len__", &LayerCalls::size);
  module.def("conv2d", &convx::front::conv2d);
  module.def("register_derivative", &convx::front::register_derivative);
  module.def("state_of", &convx::front::state_of);
  module.def("forget_plans", &convx::front::forget_plans);
  module.def("forget_weights", &convx::front::forget_weights);
}
