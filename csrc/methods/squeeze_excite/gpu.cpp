#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx {

struct float16;  // platform/gpu/numeric.h, which device code alone includes
struct bfloat16;

namespace squeeze_excite {

// Defined in launch.cuh, one translation unit for each element type.
template <class T>
void launch_typed(const Plan& plan, const ExciteProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float>(const Plan&, const ExciteProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ExciteProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ExciteProblem&, const Pointers&, Stream);

void launch_gpu(const Plan& plan, const ExciteProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.dtype == DType::float32) return launch_typed<float>(plan, problem, pointers, stream);
  if (problem.dtype == DType::bfloat16) return launch_typed<bfloat16>(plan, problem, pointers, stream);
  launch_typed<float16>(plan, problem, pointers, stream);
}

}  // namespace squeeze_excite
}  // namespace convx
