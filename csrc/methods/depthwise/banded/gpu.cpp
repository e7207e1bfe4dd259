#include <stdexcept>

#include "methods/depthwise/family.h"

namespace convx {
struct float16;
struct bfloat16;
}  // namespace convx

namespace convx::depthwise {

namespace banded {
// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
}  // namespace banded

void launch_banded(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::bfloat16) {
    return banded::launch_typed<bfloat16>(plan, problem, pointers, stream);
  }
  banded::launch_typed<float16>(plan, problem, pointers, stream);
}

}  // namespace convx::depthwise
