// Running a plan of a problem of any kind.
#pragma once
#include "plan/launch.h"
#include "torch/tensor.h"

namespace convx {

// Launches a plan of any method but native, with a workspace from torch where it asks for one, and with
// filters packed for it unless pointers has them.
template <class Problem>
void run(const Plan& plan, const Problem& problem, Pointers pointers, const TensorView& input);

// The filters in the order that a plan names, as bytes on the device of like; none where it names no order.
template <class Problem>
Tensor pack(const Plan& plan, const Problem& problem, const void* weight, const TensorView& like);

}  // namespace convx
