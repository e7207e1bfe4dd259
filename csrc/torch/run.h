// Choosing a plan and running it.
#pragma once
#include <memory>
#include <string>

#include "select/launch.h"
#include "torch/tensor.h"

namespace convx {

// select() for that problem, device and algorithm, remembered, so that a repeated call costs a look-up.
// Thread-safe and bounded.
std::shared_ptr<const Plan> plan_for(const ConvProblem& problem, const DeviceTraits& device,
                                     const std::string& algorithm);

// Launches a plan of any method but native, with a workspace from torch where it asks for one.
void run(const Plan& plan, const ConvProblem& problem, Pointers pointers, const TensorView& input);

}  // namespace convx
