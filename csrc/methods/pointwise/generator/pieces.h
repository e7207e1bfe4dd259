// The parts of generated sources.
#pragma once
#include <string>
#include <vector>

#include "methods/pointwise/generator/tiling.h"

namespace convx::pointwise::generator {

// The names that NVRTC, hipRTC and the host executor have for the same things.
const char* prologue();
// Element, as stored; Sum, as accumulated; widen, narrow and multiply_add between them.
std::string element_type(DType dtype);
std::string activation(Activation activation, DType dtype);
// input_pixel(output pixel): where its input lies in the plane.
std::string input_pixel(const ConvProblem& problem);
// fetch and put: a chunk from global memory to registers, and from there to shared memory.
std::string staging(const ConvProblem& problem, const Tiling& tiling, int lanes);
// store: some neighbouring results to global memory at once.
std::string result_piece(const ConvProblem& problem, const Tiling& tiling, int lanes);
// From sums to results: the reduction over a group's lanes, bias, activation, stores.
std::string finish(const ConvProblem& problem, const Tiling& tiling, int lanes);

std::string number(int64_t value);
// "a && b", or nothing: what a specialised kernel need not ask is left out.
std::string all_of(const std::vector<std::string>& conditions);

}  // namespace convx::pointwise::generator
