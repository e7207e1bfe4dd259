// From a plan to a launch of the reuse kernel, for one element type.
#pragma once
#include "methods/filter2d/reuse/kernel.cuh"
#include "methods/filter2d/typed.h"
#include "platform/gpu/overlap.h"

namespace convx::filter2d::reuse {

template <class T>
struct Call {
  Arguments<T> arguments;
  int64_t lanes;
  Stream stream;
};

template <class T, int Filter, bool Columns, int Rows>
void start(const Call<T>& call) {
  with_lanes(call.lanes, [&](auto width) {
    constexpr int kLanes = decltype(width)::value;
    Grid grid;
    grid.x = static_cast<uint32_t>(divide_up(call.arguments.units, kThreads / kLanes));
    launch_in_turn(filter_reuse_kernel<kLanes, T, Filter, Columns, Rows>, "filter2d reuse", grid, kThreads, 0,
                   call.stream, call.arguments);
  });
}

template <class T, int Filter, bool Columns>
void start_rows(const Call<T>& call, int64_t rows) {
  if (rows == 1) return start<T, Filter, Columns, 1>(call);
  if (rows == kMaxReuseRows) return start<T, Filter, Columns, kMaxReuseRows>(call);
  if constexpr (has_rows(2, Filter, sizeof(T))) {
    if (rows == 2) return start<T, Filter, Columns, 2>(call);
  }
  if constexpr (has_rows(8, Filter, sizeof(T))) {
    if (rows == 8) return start<T, Filter, Columns, 8>(call);
  }
  throw std::logic_error("convx: no reuse kernel of " + std::to_string(rows) + " rows a thread");
}

template <class T, int Filter>
void start_form(const Call<T>& call, bool columns, int64_t rows) {
  return columns ? start_rows<T, Filter, true>(call, rows) : start_rows<T, Filter, false>(call, rows);
}

template <class T>
void launch_typed(const Plan& plan, const FilterProblem& problem, const FilterPointers& pointers,
                  Stream stream) {
  Call<T> call{};
  call.lanes = plan["lanes"];
  call.stream = stream;
  const auto narrow_int = [](int64_t value) { return static_cast<int>(value); };
  const int64_t chunk_rows = plan["chunk_rows"];
  Arguments<T>& a = call.arguments;
  a.images = static_cast<const T*>(pointers.images);
  a.filters = static_cast<const FilterElement<T>*>(pointers.filters);
  a.result = static_cast<T*>(pointers.result);
  a.height = narrow_int(problem.height), a.width = narrow_int(problem.width);
  a.out_height = narrow_int(problem.out_height), a.out_width = narrow_int(problem.out_width);
  a.top = narrow_int(problem.padding_top), a.left = narrow_int(problem.padding_left);
  a.chunk_rows = narrow_int(chunk_rows);
  a.filters_count = narrow_int(problem.filters);
  a.segments = FastDivide(static_cast<uint32_t>(divide_up(problem.out_width, call.lanes)));
  a.chunks = FastDivide(static_cast<uint32_t>(chunks_of(problem, chunk_rows)));
  a.units = static_cast<uint32_t>(units_of(problem, chunk_rows, call.lanes));
  a.border = problem.border;
  a.bias = initial_bias<FilterElement<T>>(problem.epilogue, pointers.epilogue);
  a.activation = problem.epilogue.activation;
  const bool columns = plan["columns"] != 0;
  const int64_t rows = plan["rows"];
  switch (problem.filter_height) {
    case 3:
      return start_form<T, 3>(call, columns, rows);
    case 5:
      return start_form<T, 5>(call, columns, rows);
    case 7:
      return start_form<T, 7>(call, columns, rows);
    case 9:
      if constexpr (has_filter(9, sizeof(T))) return start_form<T, 9>(call, columns, rows);
  }
  throw std::logic_error("convx: no reuse kernel for " + describe(problem));
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const FilterProblem&, const FilterPointers&, Stream);

}  // namespace convx::filter2d::reuse
