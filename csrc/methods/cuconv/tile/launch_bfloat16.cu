#include "methods/cuconv/tile/launch.cuh"

namespace convx::cuconv {

void launch_tile_bfloat16(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream) {
  tile::launch_typed<bfloat16>(plan, sweep, operands, stream);
}

}  // namespace convx::cuconv
