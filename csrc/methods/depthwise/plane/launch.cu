#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "methods/depthwise/plane/kernel.cuh"
#include "platform/gpu/overlap.h"
#include "problem/sweep.h"

namespace convx::depthwise {
namespace {

template <class T>
plane::Arguments<T> arguments_of(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  const bool forward = problem.operation == Operation::forward;
  plane::Arguments<T> a{};
  a.source = static_cast<const T*>(forward ? pointers.input : pointers.output_grad);
  a.weight = static_cast<const T*>(pointers.weight);
  a.result = static_cast<T*>(pointers.result);
  const plane::Shares shares = plane::shares_of(problem, static_cast<int>(plan["lanes"]));
  a.planes = problem.batch * problem.in_channels;
  a.chunks = shares.chunks;
  a.channels = static_cast<uint32_t>(problem.in_channels);
  a.period = static_cast<uint32_t>(shares.period);
  a.slices = static_cast<uint32_t>(plan["slices"]);
  a.bulk = is_aligned(a.source, 16) && is_aligned(a.result, 16);
  a.flip = sweep_of(problem).flipped;
  a.bias = initial_bias<T>(problem, pointers);
  a.activation = problem.epilogue.activation;
  return a;
}

template <class T, int Filter, int Side>
void start(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const plane::Arguments<T> a = arguments_of<T>(plan, problem, pointers);
  const int64_t warps = plan["warps"], shares = static_cast<int64_t>(a.period) * a.slices;
  // Warps that walk over several chunks are as many as fill the device evenly. Placed as room comes free they
  // would not lie so: 14x14 maps of bfloat16 took up to 1.19 of the time on an H200.
  if (a.chunks > shares) stream = stream.without_overlap();
  with_lanes(plan["lanes"], [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    using Shape = plane::Form<T, kLanes, Filter, Side>;
    Grid grid;
    grid.x = static_cast<uint32_t>((shares + warps - 1) / warps);
    launch_in_turn(plane::plane_kernel<T, kLanes, Filter, Side>, "depthwise plane", grid,
                   static_cast<uint32_t>(warps * kLanes),
                   static_cast<uint32_t>(warps * Shape::kStages * Shape::kChunkBytes), stream, a);
  });
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.in_width == 7) {
    if (problem.filter_width == 3) return start<T, 3, 7>(plan, problem, pointers, stream);
    return start<T, 5, 7>(plan, problem, pointers, stream);
  }
  if (problem.filter_width == 3) return start<T, 3, 14>(plan, problem, pointers, stream);
  return start<T, 5, 14>(plan, problem, pointers, stream);
}

}  // namespace

void launch_plane(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  with_element(problem, [&](auto element) {
    launch_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
