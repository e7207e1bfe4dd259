#include "methods/cuconv/cuconv.h"
#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/hntmp/hntmp.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "methods/pointwise/pointwise.h"
#include "methods/squeeze_excite/squeeze_excite.h"
#include "plan/launchers.h"

namespace convx {
namespace {

const CpuLauncher<ConvProblem> kConvolutions[] = {
    {&depthwise::method, depthwise::launch_cpu, nullptr},
    {&filter2d::method, filter2d::launch_cpu, nullptr},
    {&pointwise::method, pointwise::launch_cpu, pointwise::pack_weight_cpu},
    {&hntmp::method, hntmp::launch_cpu, hntmp::pack_weight_cpu},
    {&cuconv::method, cuconv::launch_cpu, cuconv::pack_weight_cpu},
};

const CpuLauncher<FilterProblem> kFilterings[] = {
    {&filter2d::filtering, filter2d::launch_cpu, nullptr},
};

const CpuLauncher<BlockProblem> kBlocks[] = {
    {&inverted_residual::method, inverted_residual::launch_cpu, inverted_residual::pack_weights_cpu},
};

const CpuLauncher<ExciteProblem> kExcites[] = {
    {&squeeze_excite::method, squeeze_excite::launch_cpu, nullptr},
};

}  // namespace

template <>
const CpuLauncher<ConvProblem>& cpu_launcher(const Plan& plan) {
  return find_launcher(kConvolutions, plan);
}

template <>
const CpuLauncher<FilterProblem>& cpu_launcher(const Plan& plan) {
  return find_launcher(kFilterings, plan);
}

template <>
const CpuLauncher<BlockProblem>& cpu_launcher(const Plan& plan) {
  return find_launcher(kBlocks, plan);
}

template <>
const CpuLauncher<ExciteProblem>& cpu_launcher(const Plan& plan) {
  return find_launcher(kExcites, plan);
}

}  // namespace convx
