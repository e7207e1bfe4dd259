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

const GpuLauncher<ConvProblem> kConvolutions[] = {
    {&depthwise::method, depthwise::launch_gpu, nullptr},
    {&filter2d::method, filter2d::launch_gpu, nullptr},
    {&pointwise::method, pointwise::launch_gpu, pointwise::pack_weight_gpu},
    {&hntmp::method, hntmp::launch_gpu, hntmp::pack_weight_gpu},
    {&cuconv::method, cuconv::launch_gpu, cuconv::pack_weight_gpu},
};

const GpuLauncher<FilterProblem> kFilterings[] = {
    {&filter2d::filtering, filter2d::launch_gpu, nullptr},
};

const GpuLauncher<BlockProblem> kBlocks[] = {
    {&inverted_residual::method, inverted_residual::launch_gpu, inverted_residual::pack_weights_gpu},
};

const GpuLauncher<ExciteProblem> kExcites[] = {
    {&squeeze_excite::method, squeeze_excite::launch_gpu, nullptr},
};

}  // namespace

template <>
const GpuLauncher<ConvProblem>& gpu_launcher(const Plan& plan) {
  return find_launcher(kConvolutions, plan);
}

template <>
const GpuLauncher<FilterProblem>& gpu_launcher(const Plan& plan) {
  return find_launcher(kFilterings, plan);
}

template <>
const GpuLauncher<BlockProblem>& gpu_launcher(const Plan& plan) {
  return find_launcher(kBlocks, plan);
}

template <>
const GpuLauncher<ExciteProblem>& gpu_launcher(const Plan& plan) {
  return find_launcher(kExcites, plan);
}

}  // namespace convx
