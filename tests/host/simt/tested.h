// What a driver was compiled to run: a family of the depthwise method (CONVX_FAMILY) or a method
// (CONVX_METHOD).
#pragma once
#include <vector>

#include "plan/launch.h"
#include "plan/method.h"

#define CONVX_JOIN_(a, b) a##b
#define CONVX_JOIN(a, b) CONVX_JOIN_(a, b)
#define CONVX_TEXT_(a) #a
#define CONVX_TEXT(a) CONVX_TEXT_(a)

#if defined(CONVX_FAMILY)
#include "methods/depthwise/family.h"
#define CONVX_TESTED CONVX_FAMILY
#else
#define CONVX_TESTED CONVX_METHOD
// What every method's header declares; one without a packing has no pack_weight_gpu.
namespace convx::CONVX_METHOD {
extern const Method method;
void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
__attribute__((weak)) void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight,
                                           void* packed, Stream stream);
}  // namespace convx::CONVX_METHOD
#endif

namespace simt_test {

using namespace convx;

constexpr const char* kTested = CONVX_TEXT(CONVX_TESTED);

#if defined(CONVX_FAMILY)
inline Support tested_supports(const ConvProblem& problem, const DeviceTraits& device) {
  return depthwise::CONVX_JOIN(CONVX_FAMILY, _family).supports(problem, device);
}
inline std::vector<Plan> tested_plans(const ConvProblem& problem, const DeviceTraits& device) {
  std::vector<Plan> plans;
  depthwise::CONVX_JOIN(CONVX_FAMILY, _family).append(problem, device, plans);
  return plans;
}
inline void launch_tested(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  depthwise::CONVX_JOIN(launch_, CONVX_FAMILY)(plan, problem, pointers, Stream());
}
inline void pack_tested(const Plan&, const ConvProblem&, const void*, void*) {}
#else
inline Support tested_supports(const ConvProblem& problem, const DeviceTraits& device) {
  return CONVX_METHOD::method.supports(problem, device);
}
inline std::vector<Plan> tested_plans(const ConvProblem& problem, const DeviceTraits& device) {
  return CONVX_METHOD::method.candidates(problem, device);
}
inline void launch_tested(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  CONVX_METHOD::launch_gpu(plan, problem, pointers, Stream());
}
inline void pack_tested(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed) {
  CONVX_METHOD::pack_weight_gpu(plan, problem, weight, packed, Stream());
}
#endif

}  // namespace simt_test
