// From a plan to a launch of the general kernel, for one element type.
#pragma once
#include "methods/filter2d/general/kernel.cuh"
#include "methods/filter2d/typed.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::general {

template <class T, bool Columns, int Rows>
void start(const Arguments<T>& arguments, int64_t lanes, Stream stream) {
  with_lanes(lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    const int64_t groups_per_block = arguments.groups_per_warp * (kThreads / kLanes);
    Grid grid;
    grid.x = static_cast<uint32_t>(divide_up(arguments.units, groups_per_block));
    launch_in_turn(filter_general_kernel<kLanes, T, Columns, Rows>, "filter2d general", grid, kThreads, 0,
                   stream, arguments);
  });
}

template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream) {
  const int64_t lanes = plan["lanes"], rows = plan["rows"], group_lanes = plan["segment"];
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  const int64_t segments = divide_up(problem.out_width, group_lanes);
  const int64_t row_tiles = divide_up(problem.out_height, rows);
  Arguments<T> a{};
  a.images = static_cast<const T*>(pointers.images);
  a.filters = static_cast<const FilterElement<T>*>(pointers.filters);
  a.result = static_cast<T*>(pointers.result);
  a.height = narrow_int(problem.height), a.width = narrow_int(problem.width);
  a.out_height = narrow_int(problem.out_height), a.out_width = narrow_int(problem.out_width);
  a.top = narrow_int(problem.padding_top), a.left = narrow_int(problem.padding_left);
  a.stride_h = narrow_int(problem.stride_h), a.stride_w = narrow_int(problem.stride_w);
  a.dilation_h = narrow_int(problem.dilation_h), a.dilation_w = narrow_int(problem.dilation_w);
  a.filter_height = narrow_int(problem.filter_height), a.filter_width = narrow_int(problem.filter_width);
  a.filters_count = narrow_int(problem.filters);
  a.groups_per_warp = narrow_int(lanes / group_lanes);
  a.group_lanes = divide_by(group_lanes), a.segments = divide_by(segments);
  a.row_tiles = divide_by(row_tiles), a.divide_dilation_h = divide_by(problem.dilation_h);
  a.units = static_cast<uint32_t>(problem.images * row_tiles * segments);
  a.border = problem.border;
  a.bias = initial_bias<FilterElement<T>>(problem.epilogue, pointers.epilogue);
  a.activation = problem.epilogue.activation;
  constexpr int kBothRows = general_rows(kReuseForms[0], sizeof(T)),
                kRows = general_rows(kReuseForms[1], sizeof(T));
  if (plan["columns"] != 0) {
    return rows > 1 ? start<T, true, kBothRows>(a, lanes, stream) : start<T, true, 1>(a, lanes, stream);
  }
  return rows > 1 ? start<T, false, kRows>(a, lanes, stream) : start<T, false, 1>(a, lanes, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::general
