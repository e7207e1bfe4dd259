#include "methods/pointwise/family.h"
#include "platform/gpu/platform.h"

namespace convx::pointwise {
namespace shallow {

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace shallow

void launch_shallow(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::bfloat16) {
    return shallow::launch_typed<bfloat16>(plan, problem, pointers, stream);
  }
  shallow::launch_typed<float16>(plan, problem, pointers, stream);
}

}  // namespace convx::pointwise
