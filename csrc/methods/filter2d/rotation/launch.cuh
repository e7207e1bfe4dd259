// From a plan to a launch of the rotation kernel, for one element type.
#pragma once
#include "methods/filter2d/rotation/kernel.cuh"
#include "methods/filter2d/typed.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::rotation {

template <class T, bool Aligned>
void start(const Arguments<T>& arguments, const Geometry& geometry, int64_t shared, int64_t lanes,
           Stream stream) {
  with_lanes(lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    Grid grid;
    grid.x = static_cast<uint32_t>(geometry.blocks);
    launch_in_turn(filter_rotation_kernel<kLanes, T, Aligned>, "filter2d rotation", grid, kThreads,
                   static_cast<uint32_t>(shared), stream, arguments);
  });
}

template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream) {
  const int64_t lanes = plan["lanes"];
  const Geometry geometry = geometry_of(problem, lanes);
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T> a{};
  a.images = static_cast<const T*>(pointers.images);
  a.filters = static_cast<const FilterElement<T>*>(pointers.filters);
  a.result = static_cast<T*>(pointers.result);
  a.height = narrow_int(problem.height), a.width = narrow_int(problem.width);
  a.out_height = narrow_int(problem.out_height), a.out_width = narrow_int(problem.out_width);
  a.shift = narrow_int(shift_of(problem)), a.pieces = narrow_int(pieces_of(problem));
  a.top = narrow_int(problem.padding_top), a.left = narrow_int(problem.padding_left) + a.shift;
  a.filter_height = narrow_int(problem.filter_height), a.filter_width = narrow_int(problem.filter_width);
  a.step = narrow_int(geometry.step), a.groups_per_warp = narrow_int(geometry.groups_per_warp);
  a.filters_count = divide_by(problem.filters), a.group_lanes = divide_by(geometry.group_lanes);
  a.segments = divide_by(geometry.segments), a.row_tiles = divide_by(geometry.row_tiles);
  a.units = static_cast<uint32_t>(geometry.units);
  a.border = problem.border;
  a.bias = initial_bias<FilterElement<T>>(problem.epilogue, pointers.epilogue);
  a.activation = problem.epilogue.activation;
  // A tensor may start anywhere, which only shows here.
  const auto divides = [](const void* pointer) {
    return is_aligned(pointer, std::min<size_t>(sizeof(T) * kColumns, 16));
  };
  const bool aligned = problem.width % kColumns == 0 && problem.out_width % kColumns == 0 &&
                       divides(pointers.images) && divides(pointers.result);
  const int64_t shared = tap_bytes_of(problem);
  return aligned ? start<T, true>(a, geometry, shared, lanes, stream)
                 : start<T, false>(a, geometry, shared, lanes, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::rotation
