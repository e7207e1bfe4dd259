// Squeeze-and-excitation without a kernel of its own.
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx::squeeze_excite {
namespace {

constexpr double kLaunches = 10;  // microseconds of five kernels that do nothing

Support supports(const ExciteProblem& /*problem*/, const DeviceTraits& /*device*/) {
  return Support::yes();
}

// The input is read twice.
std::vector<Plan> candidates(const ExciteProblem& p, const DeviceTraits& device) {
  const double again = static_cast<double>(p.elements() * element_size(p.dtype));
  Plan plan;
  plan.method = &native;
  plan.predicted_us = (p.bytes() + again) / (device.bandwidth_GBps * 1e3) + kLaunches;
  return {plan};
}

}  // namespace

const MethodOf<ExciteProblem> native = {"native", "a mean, two convolutions, the gate and a product",
                                        supports, candidates};

}  // namespace convx::squeeze_excite
