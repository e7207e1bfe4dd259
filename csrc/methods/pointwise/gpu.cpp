#include <stdexcept>

#include "methods/pointwise/family.h"
#include "methods/pointwise/pointwise.h"

namespace convx::pointwise {

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (plan.kernel) {
    case kFma:
      return launch_fma(plan, problem, pointers, stream);
    case kFmaWeight:
      return launch_fma_weight(plan, problem, pointers, stream);
    case kTensor:
      return launch_tensor(plan, problem, pointers, stream);
    case kShallow:
      return launch_shallow(plan, problem, pointers, stream);
    case kDeep:
      return launch_deep(plan, problem, pointers, stream);
    case kGenerated:
      return launch_generated(plan, problem, pointers, stream);
  }
  throw std::logic_error("convx: no pointwise GPU kernel for " + describe(plan));
}

void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream) {
  if (plan.kernel == kTensor || plan.kernel == kShallow)
    return pack_fragments(plan, problem, weight, packed, stream);
  if (plan.kernel == kDeep) return pack_deep(plan, problem, weight, packed, stream);
  pack_transposed(plan, problem, weight, packed, stream);
}

}  // namespace convx::pointwise
