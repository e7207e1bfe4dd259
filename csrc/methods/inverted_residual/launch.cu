#include <stdexcept>

#include "methods/inverted_residual/banded/banded.h"
#include "methods/inverted_residual/excited/excited.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "platform/gpu/platform.h"

namespace convx::inverted_residual {

#if defined(CONVX_HIP)
// No AMD GPU is ever given such a plan (supports in plan.cpp).
void launch_gpu(const Plan& plan, const BlockProblem&, const Pointers&, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}
void pack_weights_gpu(const Plan& plan, const BlockProblem&, const void*, void*, Stream) {
  throw std::logic_error("convx: an AMD GPU can't run " + describe(plan));
}
#else

// Defined in launch.cuh, as those of the forms' folders are: one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream);
template <class T>
void pack_typed(const Plan& plan, const BlockProblem& problem, const BlockWeights& weights, void* packed,
                Stream stream);

template <class T>
void launch(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream) {
  if (plan.candidate == banded::kCandidate) return banded::launch_typed<T>(plan, problem, pointers, stream);
  if (plan.candidate == excited::kCandidate) {
    return excited::launch_typed<T>(plan, problem, pointers, stream);
  }
  launch_typed<T>(plan, problem, pointers, stream);
}

template <class T>
void pack(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed, Stream stream) {
  const BlockWeights& all = *static_cast<const BlockWeights*>(weights);
  if (plan.candidate == banded::kCandidate) {
    return banded::pack_typed<T>(plan, problem, all, packed, stream);
  }
  if (plan.candidate == excited::kCandidate) {
    return excited::pack_typed<T>(plan, problem, all, packed, stream);
  }
  pack_typed<T>(plan, problem, all, packed, stream);
}

void pack_float(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed,
                Stream stream) {
  pack_typed<float>(plan, problem, *static_cast<const BlockWeights*>(weights), packed, stream);
}

void launch_gpu(const Plan& plan, const BlockProblem& problem, const Pointers& pointers, Stream stream) {
  const auto run = problem.dtype == DType::float32    ? launch_typed<float>
                   : problem.dtype == DType::bfloat16 ? launch<bfloat16>
                                                      : launch<float16>;
  run(plan, problem, pointers, stream);
}

void pack_weights_gpu(const Plan& plan, const BlockProblem& problem, const void* weights, void* packed,
                      Stream stream) {
  const auto run = problem.dtype == DType::float32    ? pack_float
                   : problem.dtype == DType::bfloat16 ? pack<bfloat16>
                                                      : pack<float16>;
  run(plan, problem, weights, packed, stream);
}

#endif

}  // namespace convx::inverted_residual
