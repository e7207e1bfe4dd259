#include "methods/hntmp/forms/forms.h"
#include "methods/hntmp/hntmp.h"
#include "methods/hntmp/stem/stem.h"
#include "methods/hntmp/stem_tensor/stem_tensor.h"
#include "methods/packing/crsk.cuh"

namespace convx::hntmp {

namespace forms {
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace forms

namespace stem {
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace stem

namespace stem_tensor {
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
}  // namespace stem_tensor

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);
extern template void launch_typed<float>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<double>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<float16>(const Plan&, const ConvProblem&, const Pointers&, Stream);
extern template void launch_typed<bfloat16>(const Plan&, const ConvProblem&, const Pointers&, Stream);

static void launch_stem(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  switch (problem.dtype) {
    case DType::float16:
      return stem::launch_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return stem::launch_typed<bfloat16>(plan, problem, pointers, stream);
    default:
      return stem::launch_typed<float>(plan, problem, pointers, stream);
  }
}

static void launch_stem_tensor(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                               Stream stream) {
  if (problem.dtype == DType::bfloat16)
    return stem_tensor::launch_typed<bfloat16>(plan, problem, pointers, stream);
  stem_tensor::launch_typed<float16>(plan, problem, pointers, stream);
}

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (forms::is_form(plan.candidate)) return forms::launch_typed<float>(plan, problem, pointers, stream);
  if (plan.candidate == stem_tensor::kCandidate) return launch_stem_tensor(plan, problem, pointers, stream);
  if (plan.candidate == stem::kCandidate) return launch_stem(plan, problem, pointers, stream);
  switch (problem.dtype) {
    case DType::float32:
      return launch_typed<float>(plan, problem, pointers, stream);
    case DType::float64:
      return launch_typed<double>(plan, problem, pointers, stream);
    case DType::float16:
      return launch_typed<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return launch_typed<bfloat16>(plan, problem, pointers, stream);
  }
}

void pack_weight_gpu(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                     Stream stream) {
  packing::pack_crsk_gpu(problem, plan["block_channels"], weight, packed, stream);
}

}  // namespace convx::hntmp
