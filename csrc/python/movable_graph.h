// convx._core.movable_graph.
#pragma once
#include <pybind11/pybind11.h>

void bind_movable_graph(pybind11::module_& module);
