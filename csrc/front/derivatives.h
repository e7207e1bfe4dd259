// The operators' Autograd kernels.
#pragma once
#include <pybind11/pybind11.h>

#include <string>

namespace convx::front {

// Registers derivative(keyset, *arguments) as an operator's Autograd kernel. Calls that nobody asks a
// gradient of, as those of what torch.compile has recorded, go on without it, and without Python.
void register_derivative(const std::string& name, pybind11::object derivative);

}  // namespace convx::front
