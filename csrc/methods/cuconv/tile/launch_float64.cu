#include "methods/cuconv/tile/launch.cuh"

namespace convx::cuconv {

void launch_tile_float64(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream) {
  tile::launch_typed<double>(plan, sweep, operands, stream);
}

}  // namespace convx::cuconv
