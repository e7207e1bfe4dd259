// The submodules of convx._core that have a file of their own.
#pragma once
#include <pybind11/pybind11.h>

void bind_generator(pybind11::module_& parent);
