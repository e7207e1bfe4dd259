#include "torch/run.h"

#include "torch/backend.h"

namespace convx {

void run(const Plan& plan, const ConvProblem& problem, Pointers pointers, const TensorView& input) {
  // Alive until launched: torch's allocator orders their reuse by stream.
  std::optional<Tensor> workspace, packed;
  if (plan.workspace_bytes > 0) {
    workspace = allocate_bytes(plan.workspace_bytes, input);
    pointers.workspace = workspace->mutable_data_ptr();
  }
  if (!plan.packing.empty() && pointers.packed_weight == nullptr) {
    packed = pack(plan, problem, pointers.weight, input);
    pointers.packed_weight = packed->const_data_ptr();
    pointers.packed_just_now = true;
  }
  launch(plan, problem, pointers, input.device_index);
}

Tensor pack(const Plan& plan, const ConvProblem& problem, const void* weight, const TensorView& like) {
  Tensor packed = allocate_bytes(plan.packed_weight_bytes, like);
  if (!plan.packing.empty()) {
    pack_weight(plan, problem, weight, packed.mutable_data_ptr(), like.device_index);
  }
  return packed;
}

}  // namespace convx
