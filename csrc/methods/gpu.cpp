#include <stdexcept>

#include "methods/cuconv/cuconv.h"
#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/hntmp/hntmp.h"
#include "methods/pointwise/pointwise.h"
#include "plan/launchers.h"

namespace convx {
namespace {

const GpuLauncher kLaunchers[] = {
    {&depthwise::method, depthwise::launch_gpu, nullptr},
    {&filter2d::method, filter2d::launch_gpu, nullptr},
    {&pointwise::method, pointwise::launch_gpu, pointwise::pack_weight_gpu},
    {&hntmp::method, hntmp::launch_gpu, hntmp::pack_weight_gpu},
    {&cuconv::method, cuconv::launch_gpu, cuconv::pack_weight_gpu},
};

}  // namespace

const GpuLauncher& gpu_launcher(const Plan& plan) {
  for (const GpuLauncher& launcher : kLaunchers) {
    if (launcher.method == plan.method) return launcher;
  }
  throw std::logic_error("convx: no GPU launcher for " + describe(plan));
}

}  // namespace convx
