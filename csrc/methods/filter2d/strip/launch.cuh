// From a plan to a launch of the strip kernel, for one element type.
#pragma once
#include "methods/filter2d/strip/geometry.h"
#include "methods/filter2d/strip/kernel.cuh"
#include "methods/filter2d/typed.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::strip {

template <class T>
struct Call {
  Arguments<T> arguments;
  uint32_t blocks;
  int64_t lanes;
  Stream stream;
};

template <class T, int Filter, Variant V>
void start(const Call<T>& call) {
  using Shape = Form<T, Filter, V>;
  with_lanes(call.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    Grid grid;
    grid.x = call.blocks;
    launch_in_turn(filter_strip_kernel<kLanes, T, Filter, V>, "filter2d strip", grid, Shape::kThreads, 0,
                   call.stream, call.arguments);
  });
}

template <class T, int Filter>
void start_variant(const Call<T>& call, Variant variant) {
  switch (variant) {
    case Variant::tall:
      return start<T, Filter, Variant::tall>(call);
    case Variant::flat:
      return start<T, Filter, Variant::flat>(call);
    case Variant::ragged:
      return start<T, Filter, Variant::ragged>(call);
  }
}

template <class T>
Call<T> call_of(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                Variant variant, Stream stream) {
  const Tile tile = tile_of(sizeof(T), static_cast<int>(problem.filter_height), variant);
  const Cut cut{plan["segment"], plan["segments"], plan["stack"], plan["filters"]};
  Call<T> call{};
  call.lanes = plan["lanes"];
  call.stream = stream;
  const Geometry geometry = geometry_of(problem, tile, cut, call.lanes);
  call.blocks = static_cast<uint32_t>(geometry.blocks);
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T>& a = call.arguments;
  a.images = static_cast<const T*>(pointers.images);
  a.filters = static_cast<const FilterElement<T>*>(pointers.filters);
  a.result = static_cast<T*>(pointers.result);
  a.height = narrow_int(problem.height), a.width = narrow_int(problem.width);
  a.out_height = narrow_int(problem.out_height), a.out_width = narrow_int(problem.out_width);
  a.top = narrow_int(problem.padding_top);
  a.left = narrow_int(problem.padding_left - problem.filter_width / 2);
  a.step = narrow_int(cut.step), a.groups_per_warp = narrow_int(geometry.groups_per_warp);
  a.filters_count = narrow_int(problem.filters), a.filters_per_block = narrow_int(cut.filters_per_block);
  a.group_lanes = divide_by(geometry.group_lanes), a.stack = divide_by(cut.stack);
  a.segments = divide_by(cut.segments), a.row_stacks = divide_by(geometry.row_stacks);
  a.filter_groups = divide_by(geometry.filter_groups);
  a.units = static_cast<uint32_t>(geometry.units);
  a.border = problem.border;
  a.bias = initial_bias<FilterElement<T>>(problem.epilogue, pointers.epilogue);
  a.activation = problem.epilogue.activation;
  return call;
}

template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream) {
  auto variant = static_cast<Variant>(plan["variant"]);
  Call<T> call = call_of<T>(plan, problem, pointers, variant, stream);
  // A tensor may start anywhere, which only shows here.
  const size_t bytes = sizeof(T) * columns_of(sizeof(T));
  const bool in_place = is_aligned(pointers.images, bytes) && is_aligned(pointers.result, bytes);
  if (variant != Variant::ragged && !in_place) {
    variant = Variant::ragged;
    call = call_of<T>(plan, problem, pointers, variant, stream);
  }
  switch (problem.filter_height) {
    case 3:
      return start_variant<T, 3>(call, variant);
    case 5:
      return start_variant<T, 5>(call, variant);
    case 7:
      return start_variant<T, 7>(call, variant);
    case 9:
      return start_variant<T, 9>(call, variant);
  }
  throw std::logic_error("convx: no strip kernel for " + describe(problem));
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::strip
