// Times of dense convolutions: a sum of what their parts take, corrected by the measured layers around them.
#pragma once
#include <string>

#include "choose/measured.h"

namespace convx {

// Nothing for groups or a dilation above 1, strides that differ, and problems far from all measured ones.
Measured dense_time(const std::string& algorithm, const ConvProblem& problem, const DeviceTraits& device);

}  // namespace convx
