// A block without a kernel of its own.
#include "methods/inverted_residual/inverted_residual.h"

namespace convx::inverted_residual {
namespace {

constexpr double kLaunches = 6;  // microseconds of three kernels that do nothing

Support supports(const BlockProblem& /*problem*/, const DeviceTraits& /*device*/) {
  return Support::yes();
}

// What is between the convolutions is written and read once each.
std::vector<Plan> candidates(const BlockProblem& p, const DeviceTraits& device) {
  const double pixels = static_cast<double>(p.height * p.width + p.out_height * p.out_width);
  const double between =
      2 * pixels * static_cast<double>(p.batch * p.expanded_channels * element_size(p.dtype));
  Plan plan;
  plan.method = &native;
  plan.predicted_us = (p.bytes() + between) / (device.bandwidth_GBps * 1e3) + kLaunches;
  return {plan};
}

}  // namespace

const MethodOf<BlockProblem> native = {"native", "three convolutions, one after the other", supports,
                                       candidates};

}  // namespace convx::inverted_residual
