// convx._front: how calls reach kernels without Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "front/calls.h"
#include "front/derivatives.h"
#include "front/layer_type.h"

namespace py = pybind11;

PYBIND11_MODULE(_front, module) {
  module.doc() = "The way from a layer to a kernel without Python, for the torch that it was built beside.";
  module.attr("LayerCalls") = convx::front::layer_calls_type();
  module.def("conv2d", &convx::front::conv2d);
  module.def("register_derivative", &convx::front::register_derivative);
  module.def("state_of", &convx::front::state_of);
  module.def("forget_plans", &convx::front::forget_plans);
  module.def("forget_weights", &convx::front::forget_weights);
}
