#include "../dispatch.h"
#include "../family.h"
#include "kernel.cuh"

namespace convx::depthwise {
namespace {

template <class T, int Filter, int Side>
void launch_tiling(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const int64_t lanes = plan["lanes"], slices = plan["slices"], threads = plan["threads"];
  PlaneWeightArguments arguments{};
  arguments.input = pointers.input;
  arguments.output_grad = pointers.output_grad;
  arguments.result = slices == 1 ? pointers.result : pointers.workspace;
  arguments.batch = static_cast<int>(problem.batch);
  arguments.channels = static_cast<int>(problem.in_channels);
  arguments.slices = static_cast<int>(slices);
  arguments.channel_groups = static_cast<int>(divide_up(problem.in_channels, planes_of_warp(Side, lanes)));
  const auto address =
      reinterpret_cast<uintptr_t>(pointers.input) | reinterpret_cast<uintptr_t>(pointers.output_grad);
  arguments.bulk = plan["bulk"] != 0 && address % 16 == 0;  // a view may start inside an allocation
  const Grid grid{static_cast<uint32_t>(arguments.channel_groups * slices)};
  const uint32_t shared = static_cast<uint32_t>(plane_weight_shared_bytes(problem, lanes, threads / lanes));
  with_lanes(lanes, [&](auto width) {
    launch_in_turn(plane_weight_kernel<T, width.value, Filter, Side>, "depthwise plane_weight", grid,
                   static_cast<uint32_t>(threads), shared, stream, arguments);
  });
  if (slices > 1) {
    sum_slices<T>(pointers.workspace, pointers.result, slices, problem.out_channels, Filter * Filter, false,
                  stream);
  }
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.in_width == 7) {
    if (problem.filter_height == 3) return launch_tiling<T, 3, 7>(plan, problem, pointers, stream);
    return launch_tiling<T, 5, 7>(plan, problem, pointers, stream);
  }
  if (problem.filter_height == 3) return launch_tiling<T, 3, 14>(plan, problem, pointers, stream);
  return launch_tiling<T, 5, 14>(plan, problem, pointers, stream);
}

}  // namespace

void launch_plane_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                         Stream stream) {
  with_element(problem, [&](auto element) {
    launch_typed<typename decltype(element)::type>(plan, problem, pointers, stream);
  });
}

}  // namespace convx::depthwise
