#include "methods/inverted_residual/inverted_residual.h"
#include "platform/gpu/platform.h"

namespace convx::inverted_residual {

template <class T>
void launch_typed(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float16>(const Plan&, const BlockProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const BlockProblem&, const Pointers&, Stream);
template <class T>
void pack_typed(const Plan& plan, const BlockProblem& problem, const BlockWeights& weights, void* packed,
                Stream stream);
extern template void pack_typed<float16>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                         Stream);
extern template void pack_typed<bfloat16>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                          Stream);

void launch_gpu(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::bfloat16) return launch_typed<bfloat16>(plan, problem, pointers, stream);
  launch_typed<float16>(plan, problem, pointers, stream);
}

void pack_weights_gpu(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed,
                      Stream stream) {
  const BlockWeights& all = *static_cast<const BlockWeights*>(weights);
  if (problem.dtype == DType::bfloat16) return pack_typed<bfloat16>(plan, problem, all, packed, stream);
  pack_typed<float16>(plan, problem, all, packed, stream);
}

}  // namespace convx::inverted_residual
