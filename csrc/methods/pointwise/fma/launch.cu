#include "methods/pointwise/family.h"
#include "platform/gpu/launch.h"

namespace convx::pointwise {
namespace fma {

// launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
template <class T>
void launch_weight_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                         Stream stream);

}  // namespace fma

void launch_fma(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (problem.dtype) {
    case DType::float16:
      return fma::launch_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return fma::launch_typed<bfloat16>(plan, problem, pointers, stream);
    case DType::float64:
      return fma::launch_typed<double>(plan, problem, pointers, stream);
    default:
      return fma::launch_typed<float>(plan, problem, pointers, stream);
  }
}

void launch_fma_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                       Stream stream) {
  switch (problem.dtype) {
    case DType::float16:
      return fma::launch_weight_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return fma::launch_weight_typed<bfloat16>(plan, problem, pointers, stream);
    case DType::float64:
      return fma::launch_weight_typed<double>(plan, problem, pointers, stream);
    default:
      return fma::launch_weight_typed<float>(plan, problem, pointers, stream);
  }
}

}  // namespace convx::pointwise
