// Launches kernels that were generated and compiled at run time.
#include "methods/pointwise/family.h"
#include "methods/pointwise/generator/kernels.h"
#include "platform/gpu/image.h"

namespace convx::pointwise {

void launch_generated(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  using namespace generator;
  const auto kernel = kernel_of(plan, problem);
  const Space space = gpu_space(problem);
  const void* input = pointers.input;
  const void* weight = pointers.weight;
  EpiloguePointers epilogue = pointers.epilogue;
  void* output = pointers.result;
  long long batch = problem.batch;
  void* arguments[] = {&input, &weight, &epilogue.bias, &epilogue.scale, &epilogue.residual, &output, &batch};
  launch_image(kernel->image, kernel->name, static_cast<uint32_t>(plan["blocks"]),
               static_cast<uint32_t>(plan["wave_n"] * plan["lanes"]),
               static_cast<uint32_t>(used_shared(kernel->tiling, space)), stream, arguments);
}

}  // namespace convx::pointwise
