// Generated pointwise kernels as a method of driver.cpp. CONVX_GENERATED_KERNELS names a file that includes
// their sources and then lists them: CONVX_GENERATED_LIST(KERNEL), KERNEL(name, "problem as a line of the
// driver", tiling's numbers in the order of the struct) for each.
#include <vector>

#include "case.h"
#include "methods/pointwise/generator/source.h"
#include "plan/launch.h"
#include "simt.h"

#include CONVX_GENERATED_KERNELS

namespace convx::generated {
namespace {

using pointwise::generator::Tiling;

struct Kernel {
  const char* name;
  const char* line;
  Tiling tiling;
  void (*run)(const Pointers&, long long batch);
};

#define CONVX_KERNEL_ENTRY(kernel, line, ...)                                          \
  {#kernel, line, Tiling{__VA_ARGS__}, [](const Pointers& pointers, long long batch) { \
     using Element = kernel##_parts::Element;                                          \
     kernel##_parts::kernel(static_cast<const Element*>(pointers.input),               \
                            static_cast<const Element*>(pointers.weight),              \
                            static_cast<const Element*>(pointers.epilogue.bias),       \
                            static_cast<const Element*>(pointers.epilogue.scale),      \
                            static_cast<const Element*>(pointers.epilogue.residual),   \
                            static_cast<Element*>(pointers.result), batch);            \
   }},
const Kernel kKernels[] = {CONVX_GENERATED_LIST(CONVX_KERNEL_ENTRY)};

// A kernel serves any batch.
bool serves(const Kernel& kernel, const ConvProblem& problem, const DeviceTraits& device) {
  simt_test::Case made_for = simt_test::parse_case(kernel.line);
  made_for.problem.batch = problem.batch;
  return made_for.problem == problem && known_device(made_for.device).name == device.name;
}

std::vector<Plan> candidates(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  for (const Kernel& kernel : kKernels) {
    if (!serves(kernel, problem, device)) continue;
    Plan plan;
    plan.candidate = kernel.name;
    plan.kernel = static_cast<int>(&kernel - kKernels);
    const int64_t blocks = launch_shape(kernel.tiling, {problem, device}).blocks;
    // All at once, and half of them, which then take tiles in turns.
    for (const int64_t grid : {blocks, (blocks + 1) / 2}) {
      plan.tiling = {{"blocks", grid}};
      plans.push_back(plan);
    }
  }
  return plans;
}

Support supports(const ConvProblem&, const DeviceTraits&) {
  return Support::yes();
}

}  // namespace

extern const Method method;
const Method method = {"generated", "kernels that were generated for the test", supports, candidates};

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream) {
  const Kernel& kernel = kKernels[plan.kernel];
  DeviceTraits device = known_device(simt_test::parse_case(kernel.line).device);
  const auto shape = pointwise::generator::launch_shape(kernel.tiling, {problem, device});
  simt::launch(kernel.name, {static_cast<uint32_t>(plan["blocks"]), 1, 1}, shape.threads,
               static_cast<uint32_t>(shape.shared_bytes), [&] { kernel.run(pointers, problem.batch); });
}

}  // namespace convx::generated
