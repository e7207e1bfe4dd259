// The CPU's plan: there is one.
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx::squeeze_excite {

Plan cpu_plan(const ExciteProblem& p, const DeviceTraits& device) {
  Plan plan;
  plan.method = &method;
  plan.tiling = {{"threads", device.threads}};
  const int64_t accumulator = p.dtype == DType::float64 ? 8 : 4;
  plan.workspace_bytes = p.batch * (2 * p.channels + p.squeezed_channels) * accumulator;
  // The input twice, of which the second time is from a cache; some multiply-adds of a row and its sum.
  const double bytes = 2.5 * static_cast<double>(p.elements() * element_size(p.dtype));
  const double products = 2 * static_cast<double>(p.batch * p.channels * p.squeezed_channels);
  plan.predicted_us = 8 + bytes / (device.bandwidth_GBps * 1e3) + products / 1e4;
  return plan;
}

}  // namespace convx::squeeze_excite
