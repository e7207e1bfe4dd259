#include "methods/pointwise/family.h"
#include "methods/pointwise/tensor/tiles.h"
#include "platform/gpu/launch.h"

namespace convx::pointwise {
namespace tensor {

// launch.cuh, one translation unit for each precision.
template <Precision Kind>
void launch_precision(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
template <Precision Kind>
void pack_precision(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream);

}  // namespace tensor

void launch_tensor(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (plan["precision"]) {
    case tensor::kBfloat16:
      return tensor::launch_precision<tensor::kBfloat16>(plan, problem, pointers, stream);
    case tensor::kFloat16:
      return tensor::launch_precision<tensor::kFloat16>(plan, problem, pointers, stream);
    case tensor::kTf32:
      return tensor::launch_precision<tensor::kTf32>(plan, problem, pointers, stream);
    default:
      return tensor::launch_precision<tensor::kSplit>(plan, problem, pointers, stream);
  }
}

void pack_fragments(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream) {
  switch (plan["precision"]) {
    case tensor::kBfloat16:
      return tensor::pack_precision<tensor::kBfloat16>(plan, problem, weight, packed, stream);
    case tensor::kFloat16:
      return tensor::pack_precision<tensor::kFloat16>(plan, problem, weight, packed, stream);
    case tensor::kTf32:
      return tensor::pack_precision<tensor::kTf32>(plan, problem, weight, packed, stream);
    default:
      return tensor::pack_precision<tensor::kSplit>(plan, problem, weight, packed, stream);
  }
}

}  // namespace convx::pointwise
