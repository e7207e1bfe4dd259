#include "torch/run.h"

#include "problem/block_problem.h"
#include "problem/excite_problem.h"
#include "problem/filter_problem.h"
#include "torch/backend.h"

namespace convx {

template <class Problem>
void run(const Plan& plan, const Problem& problem, Pointers pointers, const TensorView& input) {
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

template <class Problem>
Tensor pack(const Plan& plan, const Problem& problem, const void* weight, const TensorView& like) {
  Tensor packed = allocate_bytes(plan.packed_weight_bytes, like);
  if (!plan.packing.empty()) {
    pack_weight(plan, problem, weight, packed.mutable_data_ptr(), like.device_index);
  }
  return packed;
}

template void run(const Plan&, const ConvProblem&, Pointers, const TensorView&);
template void run(const Plan&, const FilterProblem&, Pointers, const TensorView&);
template void run(const Plan&, const BlockProblem&, Pointers, const TensorView&);
template void run(const Plan&, const ExciteProblem&, Pointers, const TensorView&);
template Tensor pack(const Plan&, const ConvProblem&, const void*, const TensorView&);
template Tensor pack(const Plan&, const FilterProblem&, const void*, const TensorView&);
template Tensor pack(const Plan&, const BlockProblem&, const void*, const TensorView&);
template Tensor pack(const Plan&, const ExciteProblem&, const void*, const TensorView&);

}  // namespace convx
