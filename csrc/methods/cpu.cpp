#include <stdexcept>

#include "methods/cuconv/cuconv.h"
#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/hntmp/hntmp.h"
#include "methods/pointwise/pointwise.h"
#include "plan/launchers.h"

namespace convx {
namespace {

const CpuLauncher kLaunchers[] = {
    {&depthwise::method, depthwise::launch_cpu, nullptr},
    {&filter2d::method, filter2d::launch_cpu, nullptr},
    {&pointwise::method, pointwise::launch_cpu, pointwise::pack_weight_cpu},
    {&hntmp::method, hntmp::launch_cpu, hntmp::pack_weight_cpu},
    {&cuconv::method, cuconv::launch_cpu, cuconv::pack_weight_cpu},
};

}  // namespace

const CpuLauncher& cpu_launcher(const Plan& plan) {
  for (const CpuLauncher& launcher : kLaunchers) {
    if (launcher.method == plan.method) return launcher;
  }
  throw std::logic_error("convx: no CPU launcher for " + describe(plan));
}

}  // namespace convx
