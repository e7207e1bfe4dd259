// LayerCalls as a type of Python's own.
#pragma once
#include <pybind11/pybind11.h>

namespace convx::front {

// convx._front.LayerCalls(): called with a layer, its input and its PackedFilters.
pybind11::object layer_calls_type();

}  // namespace convx::front
