#include <stdexcept>

#include "methods/plane_means/kernel.cuh"
#include "methods/plane_means/plane_means.h"
#include "platform/gpu/launch.h"
#include "problem/divide.h"

namespace convx::plane_means {
namespace {

template <class T>
void launch(const MeansProblem& p, const Pointers& pointers, Stream stream) {
  constexpr int64_t kChannels = kLine * 16 / static_cast<int64_t>(sizeof(T));
  const bool is_nhwc = p.layout == Layout::nhwc;
  Shape shape{};
  shape.channels = static_cast<uint32_t>(p.channels), shape.pixels = static_cast<uint32_t>(p.pixels);
  shape.planes = static_cast<uint32_t>(p.batch * p.channels);
  shape.lines = divide_by(divide_up(p.channels, kChannels));
  shape.per_pixel = 1.0f / static_cast<float>(p.pixels);
  const int64_t blocks =
      is_nhwc ? p.batch * shape.lines.divisor : divide_up(p.batch * p.channels, int64_t{kPlanes});
  launch_in_turn(is_nhwc ? pixels_kernel<T> : planes_kernel<T>, "plane means",
                 Grid{static_cast<uint32_t>(blocks)}, kThreads, 0, stream,
                 static_cast<const T*>(pointers.input), static_cast<T*>(pointers.result), shape);
}

}  // namespace

void launch_gpu(const MeansProblem& problem, const Pointers& pointers, Stream stream) {
  if (!takes(problem)) throw std::logic_error("convx: no kernel for such means");
  switch (problem.dtype) {
    case DType::bfloat16:
      return launch<bfloat16>(problem, pointers, stream);
    case DType::float16:
      return launch<float16>(problem, pointers, stream);
    default:
      return launch<float>(problem, pointers, stream);
  }
}

}  // namespace convx::plane_means
