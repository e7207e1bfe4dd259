// The forms of the native method beside torch's own choice.
#pragma once
#include <string>
#include <vector>

#include "plan/method.h"

namespace convx::native {

// Where they were not measured they are never ahead of the convolution.
void append_forms(const ConvProblem& problem, const DeviceTraits& device, double convolution_us,
                  double epilogue_us, std::vector<Plan>& plans);
// Method::why_absent.
std::string why_no_form(const ConvProblem& problem, const DeviceTraits& device, const std::string& candidate);

}  // namespace convx::native
