// From a plan to a launch of the plane_split kernel, for one element type.
#pragma once
#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "methods/depthwise/plane_split/kernel.cuh"
#include "methods/depthwise/strip/with_mapping.h"
#include "platform/gpu/overlap.h"

namespace convx::depthwise::plane_split {

template <class T>
Arguments<T> arguments_of(const Plan& plan, const ConvProblem& problem, const Pointers& pointers) {
  const View view = strip::view_of(problem);
  const Geometry geometry = geometry_of(view, problem.filter_height);
  const bool forward = problem.operation == Operation::forward;
  Arguments<T> a{};
  a.source = static_cast<const T*>(forward ? pointers.input : pointers.output_grad);
  a.weight = static_cast<const T*>(pointers.weight);
  a.result = static_cast<T*>(pointers.result);
  a.planes = static_cast<int>(geometry.planes);
  a.planes_of_block = static_cast<int>(plan["planes"]);
  a.source_floats = static_cast<int>(source_floats(geometry, a.planes_of_block, sizeof(T)));
  a.source_height = static_cast<int>(view.source_height),
  a.source_width = static_cast<int>(view.source_width);
  a.result_height = static_cast<int>(view.result_height),
  a.result_width = static_cast<int>(view.result_width);
  a.first_source_row = static_cast<int>(geometry.first_source_row);
  a.first_source_column = static_cast<int>(geometry.first_source_column);
  a.first_result_row = static_cast<int>(geometry.first_result_row);
  a.first_result_column = static_cast<int>(geometry.first_result_column);
  a.strips = divide_by(geometry.strips), a.units = divide_by(geometry.units());
  a.channels = divide_by(view.all_result_channels());
  a.flip = view.flipped;
  a.bias = initial_bias<T>(problem, pointers);
  a.activation = problem.epilogue.activation;
  return a;
}

template <class T, int Filter, Mapping M>
void start(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Arguments<T> a = arguments_of<T>(plan, problem, pointers);
  const Geometry geometry = geometry_of(strip::view_of(problem), Filter);
  Grid grid;
  grid.x = static_cast<uint32_t>((a.planes + a.planes_of_block - 1) / a.planes_of_block);
  with_lanes(plan["lanes"], [&](auto width) {
    launch_in_turn(plane_split_kernel<decltype(width)::value, T, Filter, M>, "depthwise plane_split", grid,
                   static_cast<uint32_t>(plan["threads"]),
                   static_cast<uint32_t>(shared_bytes(geometry, a.planes_of_block, sizeof(T))), stream, a);
  });
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  with_filter(problem, [&](auto filter) {
    constexpr int kFilter = filter.value;
    strip::with_mapping(strip::view_of(problem).mapping, [&](auto mapping) {
      start<T, kFilter, mapping.value>(plan, problem, pointers, stream);
    });
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::plane_split
