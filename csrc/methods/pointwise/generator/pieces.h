// The parts of generated sources that do not depend on the tiling.
#pragma once
#include <string>

#include "problem/problem.h"

namespace convx::pointwise::generator {

// The names that NVRTC, hipRTC and the host executor have for the same things.
const char* prologue();
// Element, as stored; Sum, as accumulated; widen, narrow and multiply_add between them.
std::string element_type(DType dtype);
std::string activation(Activation activation, DType dtype);
// input_pixel(output pixel): where its input lies in the plane.
std::string input_pixel(const ConvProblem& problem);

}  // namespace convx::pointwise::generator
