#include <stdexcept>

#include "methods/filter2d/typed.h"

namespace convx::filter2d {
namespace {

template <class T>
struct Pixel {
  using type = T;
};

// Calls body(Pixel<T>()) for what images of a type other than float64 have in memory.
template <class Body>
void with_pixel(ImageType dtype, const Body& body) {
  switch (dtype) {
    case ImageType::float32:
      return body(Pixel<float>());
    case ImageType::float16:
      return body(Pixel<float16>());
    case ImageType::bfloat16:
      return body(Pixel<bfloat16>());
    case ImageType::uint8:
      return body(Pixel<uint8_t>());
    case ImageType::float64:
      throw std::logic_error("convx: this kernel of filter2d has no float64");
  }
}

}  // namespace

void launch_gpu(const Plan& plan, const FilterProblem& problem, const Pointers& operands, Stream stream) {
  const FilterPointers pointers = {operands.input, operands.weight, operands.result, operands.epilogue};
  if (problem.dtype == ImageType::float64) {
    if (plan.kernel == kGeneral) return general::launch_typed<double>(plan, problem, pointers, stream);
    if (plan.kernel == kRotation) return rotation::launch_typed<double>(plan, problem, pointers, stream);
  }
  with_pixel(problem.dtype, [&](auto pixel) {
    using T = typename decltype(pixel)::type;
    switch (plan.kernel) {
      case kStrip:
        return strip::launch_typed<T>(plan, problem, pointers, stream);
      case kReuse:
        return reuse::launch_typed<T>(plan, problem, pointers, stream);
      case kGeneral:
        return general::launch_typed<T>(plan, problem, pointers, stream);
      case kRotation:
        return rotation::launch_typed<T>(plan, problem, pointers, stream);
    }
    throw std::logic_error("convx: no filter2d GPU kernel for " + convx::describe(plan));
  });
}

void launch_gpu(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  launch_gpu(plan, filter_problem(problem), pointers, stream);
}

}  // namespace convx::filter2d
