// convx._core.movable_graph: captured graphs that read and write where callers have tensors.
#include "python/movable_graph.h"

#include <pybind11/stl.h>

#include "plan/library.h"

namespace py = pybind11;
using convx::GraphTensor;
using convx::MovableGraph;

void bind_movable_graph(py::module_& module) {
  py::class_<GraphTensor>(module, "GraphTensor", "What a graph was captured with.")
      .def(py::init([](uintptr_t address, size_t bytes, bool is_result) {
             return GraphTensor{address, bytes, is_result};
           }),
           py::arg("address"), py::arg("bytes"), py::arg("is_result"));
  py::class_<MovableGraph>(module, "MovableGraph", "A graph whose tensors may lie elsewhere at each launch.")
      .def_property_readonly("uses", &MovableGraph::uses)
      .def("move", &MovableGraph::move, py::arg("addresses"));
  module.def(
      "movable_graph",
      [](uintptr_t graph, uintptr_t executable,
         const std::vector<GraphTensor>& tensors) -> std::unique_ptr<MovableGraph> {
        const convx::KernelLibrary* const library = convx::find_library(true);
        if (library == nullptr) return nullptr;
        return library->movable_graph(reinterpret_cast<void*>(graph), reinterpret_cast<void*>(executable),
                                      tensors);
      },
      py::arg("graph"), py::arg("executable"), py::arg("tensors"));
}
