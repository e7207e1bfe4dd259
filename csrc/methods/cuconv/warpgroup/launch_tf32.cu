#include "methods/cuconv/warpgroup/launch.cuh"

namespace convx::cuconv {

void launch_warpgroup_tf32(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream) {
  warpgroup::launch_precision<matrix::kTf32>(plan, sweep, operands, stream);
}
void pack_warpgroup_tf32(const Plan& plan, const Sweep& sweep, const void* weight, void* packed,
                         Stream stream) {
  warpgroup::pack_precision<matrix::kTf32>(plan, sweep, weight, packed, stream);
}

}  // namespace convx::cuconv
