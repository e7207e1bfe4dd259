// From a plan to a launch of the strip kernel, for one element type.
#pragma once
#include <stdexcept>

#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "methods/depthwise/strip/geometry.h"
#include "methods/depthwise/strip/kernel.cuh"
#include "methods/depthwise/strip/with_mapping.h"
#include "platform/gpu/overlap.h"

namespace convx::depthwise::strip {

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream);

template <class T>
struct Call {
  View view;
  int lanes;
  const T *source, *weight, *bias;
  T* result;
  Finishing<T> finishing;
  Stream stream;
};

template <class T, int Filter, Mapping M, Variant V>
void start(const Call<T>& call) {
  using Shape = Form<T, Filter, M, V>;
  const Geometry geometry = geometry_of(call.view, Filter, Shape::kTile, call.lanes);
  const View& view = call.view;
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T> a{};
  a.source = call.source, a.weight = call.weight, a.bias = call.bias, a.result = call.result;
  a.source_height = narrow_int(view.source_height), a.source_width = narrow_int(view.source_width);
  a.result_height = narrow_int(view.result_height), a.result_width = narrow_int(view.result_width);
  a.first_source_row = narrow_int(geometry.first_source_row);
  a.first_result_row = narrow_int(geometry.first_result_row);
  a.column_shift = narrow_int(geometry.column_shift);
  a.first_strip = narrow_int(geometry.first_strip);
  a.step = narrow_int(geometry.step), a.lead = narrow_int(geometry.lead);
  a.groups_per_warp = narrow_int(geometry.groups_per_warp);
  a.group_lanes = divide_by(geometry.group_lanes), a.segments = divide_by(geometry.segments);
  a.row_tiles = divide_by(geometry.row_tiles), a.result_channels = divide_by(view.all_result_channels());
  a.multiplier = divide_by(view.exchanges_channels() ? 1 : view.result_channels / view.source_channels);
  a.units = static_cast<uint32_t>(geometry.units);
  a.flip = view.flipped;
  a.finishing = call.finishing;
  with_lanes(call.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    Grid grid;
    grid.x = static_cast<uint32_t>(divide_up(geometry.warps(), Shape::kThreads / kLanes));
    launch_in_turn(strip_kernel<kLanes, T, Filter, M, V>, "depthwise strip", grid, Shape::kThreads, 0,
                   call.stream, a);
  });
}

template <class T>
constexpr DType kDType = std::is_same_v<T, float>      ? DType::float32
                         : std::is_same_v<T, bfloat16> ? DType::bfloat16
                                                       : DType::float16;

// One of the papers' halves: where there is no code for it, the planner has no plan.
template <class T, int Filter, Mapping M, Variant V>
void start_half(const Call<T>& call) {
  if constexpr (has_halves(kDType<T>, Filter, M, V)) {
    start<T, Filter, M, V>(call);
  } else {
    throw std::logic_error("convx: no depthwise strip kernel for this form of reuse");
  }
}

template <class T, int Filter, Mapping M>
void start_mapping(const Call<T>& call, Variant variant) {
  switch (variant) {
    case Variant::tall:
      return start<T, Filter, M, Variant::tall>(call);
    case Variant::flat:
      return start<T, Filter, M, Variant::flat>(call);
    case Variant::ragged_tall:
      return start<T, Filter, M, Variant::ragged_tall>(call);
    case Variant::ragged_flat:
      return start<T, Filter, M, Variant::ragged_flat>(call);
    case Variant::narrow_tall:
    case Variant::narrow_flat:
      if constexpr (has_narrow(sizeof(T), Filter, M)) {
        if (variant == Variant::narrow_tall) return start<T, Filter, M, Variant::narrow_tall>(call);
        return start<T, Filter, M, Variant::narrow_flat>(call);
      }
      break;
    case Variant::rows_only:
      return start_half<T, Filter, M, Variant::rows_only>(call);
    case Variant::columns_only:
      return start_half<T, Filter, M, Variant::columns_only>(call);
    case Variant::no_reuse:
      return start_half<T, Filter, M, Variant::no_reuse>(call);
    case Variant::narrow_rows_only:
      return start_half<T, Filter, M, Variant::narrow_rows_only>(call);
    case Variant::narrow_columns_only:
      return start_half<T, Filter, M, Variant::narrow_columns_only>(call);
    case Variant::narrow_no_reuse:
      return start_half<T, Filter, M, Variant::narrow_no_reuse>(call);
    case Variant::ragged_rows_only:
      return start_half<T, Filter, M, Variant::ragged_rows_only>(call);
    case Variant::ragged_columns_only:
      return start_half<T, Filter, M, Variant::ragged_columns_only>(call);
    case Variant::ragged_no_reuse:
      return start_half<T, Filter, M, Variant::ragged_no_reuse>(call);
  }
}

// True where every access of the aligned variants is: rows of whole strips, results at the strips' own
// columns.
template <class T>
bool pointers_aligned(const T* source, const T* result, const Tile& tile, Mapping mapping) {
  const auto divides = [](int elements, const void* pointer) {
    const size_t bytes = elements * sizeof(T) < 16 ? elements * sizeof(T) : 16;
    return convx::is_aligned(pointer, bytes);
  };
  return divides(tile.columns, source) && divides(result_columns(mapping, tile.columns), result);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  Call<T> call{};
  call.view = view_of(problem);
  call.lanes = static_cast<int>(plan["lanes"]);
  const bool forward = problem.operation == Operation::forward;
  call.source = static_cast<const T*>(forward ? pointers.input : pointers.output_grad);
  call.weight = static_cast<const T*>(pointers.weight);
  call.result = static_cast<T*>(pointers.result);
  call.bias = initial_bias<T>(problem, pointers);
  call.finishing = finishing_of<T>(problem, pointers);
  call.stream = stream;
  const int filter = static_cast<int>(problem.filter_height);
  auto variant = static_cast<Variant>(plan["variant"]);
  // A tensor may start anywhere, which only shows here.
  const Tile tile = tile_of(sizeof(T), filter, call.view.mapping, variant);
  const bool has_epilogue = call.finishing.more == 0 || has_any_epilogue(filter, variant);
  const bool aligned = pointers_aligned(call.source, call.result, tile, call.view.mapping);
  if (is_aligned(variant) && !(aligned && has_epilogue)) variant = ragged_of(kDType<T>, variant);
  with_filter(problem, [&](auto side) {
    constexpr int kFilter = side.value;
    with_mapping(call.view.mapping,
                 [&](auto mapping) { start_mapping<T, kFilter, mapping.value>(call, variant); });
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::strip
