#include "methods/cuconv/tensor/launch.cuh"

namespace convx::cuconv {

void launch_tensor_bfloat16(const Plan& plan, const Sweep& sweep, const Operands& operands, Stream stream) {
  tensor::launch_precision<matrix::kBfloat16>(plan, sweep, operands, stream);
}
void pack_tensor_bfloat16(const Plan& plan, const Sweep& sweep, const void* weight, void* packed,
                          Stream stream) {
  tensor::pack_precision<matrix::kBfloat16>(plan, sweep, weight, packed, stream);
}

}  // namespace convx::cuconv
