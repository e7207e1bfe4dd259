#include "platform/gpu/hip.h"

#if defined(CONVX_HIP)
#include <stdexcept>

#include "methods/inverted_residual/inverted_residual.h"

// No AMD GPU is ever given such a plan (supports in plan.cpp).
namespace convx::inverted_residual {

void launch_gpu(const Plan& plan, const BlockProblem&, const Pointers&, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}

void pack_weights_gpu(const Plan& plan, const BlockProblem&, const void*, void*, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}

}  // namespace convx::inverted_residual
#else
#include "methods/inverted_residual/launch.cuh"

namespace convx::inverted_residual {

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
#endif
