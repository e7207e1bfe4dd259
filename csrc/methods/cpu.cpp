#include <stdexcept>

#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/launchers.h"

namespace convx {
namespace {

const CpuLauncher kLaunchers[] = {
    {&depthwise::method, depthwise::launch_cpu, nullptr},
    {&filter2d::method, filter2d::launch_cpu, nullptr},
};

}  // namespace

const CpuLauncher& cpu_launcher(const Plan& plan) {
  for (const CpuLauncher& launcher : kLaunchers) {
    if (launcher.method == plan.method) return launcher;
  }
  throw std::logic_error("convx: no CPU launcher for " + describe(plan));
}

}  // namespace convx
