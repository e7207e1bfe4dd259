// csrc/methods/finish.cu as a method, for driver.cpp: a depthwise convolution of one tap whose products are
// made here, and finished there.
#include <cstring>

#include "methods/finish.cuh"
#include "methods/finish.h"

namespace convx::finish_method {
namespace {

constexpr int kLarge = 1;  // Plan::kernel: as sums of more than 2^31 are indexed

Support supports(const ConvProblem& p, const DeviceTraits& device) {
  if (const Support epilogue = supports_epilogue(p, device); !epilogue.ok) return epilogue;
  const bool one_tap = p.is_depthwise() && p.out_channels == p.in_channels && p.filter_height == 1 &&
                       p.filter_width == 1 && p.out_height == p.in_height && p.out_width == p.in_width;
  return one_tap && p.operation == Operation::forward ? Support::yes() : Support::no("not a product");
}

std::vector<Plan> candidates(const ConvProblem&, const DeviceTraits&) {
  std::vector<Plan> plans(2);
  plans[0].candidate = "usual";
  plans[1].candidate = "large";
  plans[1].kernel = kLarge;
  return plans;
}

template <class T>
void run(const Plan& plan, const ConvProblem& p, const Pointers& pointers, Stream stream) {
  const T* const input = static_cast<const T*>(pointers.input);
  const T* const weight = static_cast<const T*>(pointers.weight);
  for (int64_t i = 0; i < p.output_elements(); ++i) {
    const int64_t place = p.layout == Layout::nhwc ? i : i / (p.out_height * p.out_width);
    const T product = narrow<T>(widen(input[i]) * widen(weight[place % p.out_channels]));
    std::memcpy(static_cast<T*>(pointers.result) + i, &product, sizeof(T));
  }
  if (plan.kernel != kLarge) return finish_gpu(p, pointers.epilogue, pointers.result, stream);
  FinishArguments<T> arguments = finish_arguments<T>(p, pointers.epilogue, pointers.result);
  arguments.is_large = true;
  launch_finish(arguments, stream);
}

}  // namespace

extern const Method method = {"finish", "the epilogue alone", supports, candidates};

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (problem.dtype) {
    case DType::float32:
      return run<float>(plan, problem, pointers, stream);
    case DType::float64:
      return run<double>(plan, problem, pointers, stream);
    case DType::float16:
      return run<float16>(plan, problem, pointers, stream);
    case DType::bfloat16:
      return run<bfloat16>(plan, problem, pointers, stream);
  }
}

}  // namespace convx::finish_method
