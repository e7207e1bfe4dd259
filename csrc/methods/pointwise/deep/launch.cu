#include "methods/matrix/precision.h"
#include "methods/pointwise/family.h"
#include "platform/gpu/platform.h"

namespace convx::pointwise {
namespace deep {

// launch.cuh, one translation unit for each precision.
template <matrix::Precision Kind>
void launch_precision(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
template <matrix::Precision Kind>
void pack_precision(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream);

}  // namespace deep

void launch_deep(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (plan["precision"]) {
    case matrix::kBfloat16:
      return deep::launch_precision<matrix::kBfloat16>(plan, problem, pointers, stream);
    case matrix::kFloat16:
      return deep::launch_precision<matrix::kFloat16>(plan, problem, pointers, stream);
    case matrix::kTf32:
      return deep::launch_precision<matrix::kTf32>(plan, problem, pointers, stream);
    default:
      return deep::launch_precision<matrix::kSplit>(plan, problem, pointers, stream);
  }
}

void pack_deep(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
               Stream stream) {
  switch (problem.dtype) {
    case DType::bfloat16:
      return deep::pack_precision<matrix::kBfloat16>(plan, problem, weight, packed, stream);
    case DType::float16:
      return deep::pack_precision<matrix::kFloat16>(plan, problem, weight, packed, stream);
    default:
      return deep::pack_precision<matrix::kTf32>(plan, problem, weight, packed, stream);
  }
}

}  // namespace convx::pointwise
