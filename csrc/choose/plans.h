// The one memory of what was selected, for each kind of problem.
#pragma once
#include <memory>
#include <string>

#include "plan/method.h"

namespace convx {

// select() for that problem, device and algorithm, remembered, so that a repeated call costs a look-up; the
// device is one that a KernelLibrary has given. Thread-safe and bounded.
template <class Problem>
std::shared_ptr<const Plan> plan_for(const Problem& problem, const DeviceTraits& device,
                                     const std::string& algorithm);

}  // namespace convx
