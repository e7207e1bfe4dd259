#include <algorithm>
#include <cstdint>

#include "methods/pointwise/family.h"
#include "methods/pointwise/pointwise.h"
#include "methods/pointwise/product.h"

namespace convx::pointwise {
namespace {

constexpr Append* kGpuFamilies[] = {append_tensor, append_shallow,    append_deep,
                                    append_fma,    append_fma_weight, append_generated};
constexpr Append* kCpuFamilies[] = {append_cpu, append_cpu_weight};

Support supports(const ConvProblem& problem, const DeviceTraits& device) {
  if (const Support epilogue = supports_epilogue(problem, device); !epilogue.ok) return epilogue;
  if (problem.filter_height != 1 || problem.filter_width != 1) {
    return Support::no("the filter is not 1x1 (" + std::to_string(problem.filter_height) + "x" +
                       std::to_string(problem.filter_width) + ")");
  }
  if (problem.batch == 0) return Support::no("the batch is empty");
  if (const Support padding = supports_padding(problem, device); !padding.ok) return padding;
  if (device.backend == Backend::cpu) return Support::yes();
  constexpr int64_t kMost =
      INT32_MAX - 1024;  // pixels and channels are counted in 32 bits, tiles may pass them
  const int64_t most = std::max({problem.batch * problem.in_height * problem.in_width,
                                 problem.batch * problem.out_height * problem.out_width, problem.in_channels,
                                 problem.out_channels, problem.weight_elements()});
  if (most > kMost) {
    return Support::no("batch * height * width, channels and the filters' elements must be below " +
                       std::to_string(kMost) + ", one is " + std::to_string(most));
  }
  return Support::yes();
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  if (device.backend == Backend::cpu) {
    for (Append* append : kCpuFamilies) append(problem, device, plans);
  } else {
    for (Append* append : kGpuFamilies) append(problem, device, plans);
  }
  for (Plan& plan : plans) plan.method = &method;
  return plans;
}

}  // namespace

const Method method = {"pointwise",
                       "1x1 filters as a product read in place, tiles for every shape (Liu et al. 2024)",
                       supports, candidates};

}  // namespace convx::pointwise
