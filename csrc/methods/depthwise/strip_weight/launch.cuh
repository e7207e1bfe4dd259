// Starts strip_weight's kernels for one element type; launch_<dtype>.cu instantiate it.
#pragma once
#include "../dispatch.h"
#include "../family.h"
#include "kernel.cuh"

namespace convx::depthwise {

// Input rows in flight: what 128 registers hold beside the sums.
template <class T>
constexpr int strip_rows_ahead(int filter, int stride, int columns, bool aligned) {
  if (!aligned || filter == 7) return 4;
  if (sizeof(T) == 4) return columns == 2 ? 11 : filter == 3 ? 8 : stride == 1 ? 7 : 6;
  return columns == 8 || (filter == 3 && columns == 4) ? 6 : 11;
}

template <class T, int Filter, int Stride, int Columns, bool Aligned>
void launch_strip_weight_tiling(int64_t lanes, uint32_t threads, const StripWeightArguments& arguments,
                                Stream stream) {
  const Grid grid{static_cast<uint32_t>(arguments.channels) * arguments.slices};
  with_lanes(lanes, [&](auto width) {
    constexpr int kAhead = strip_rows_ahead<T>(Filter, Stride, Columns, Aligned);
    launch_in_turn(strip_weight_kernel<T, width.value, Filter, Stride, Columns, Aligned, kAhead>,
                   "depthwise strip_weight", grid, threads, 0, stream, arguments);
  });
}

template <class T, int Filter, int Stride>
void launch_strip_weight_filter(int64_t columns, bool aligned, int64_t lanes, uint32_t threads,
                                const StripWeightArguments& arguments, Stream stream) {
  constexpr int kWidest = 16 / sizeof(T);
  if (!aligned) {
    launch_strip_weight_tiling<T, Filter, Stride, 4, false>(lanes, threads, arguments, stream);
  } else if (columns == 4) {
    launch_strip_weight_tiling<T, Filter, Stride, 4, true>(lanes, threads, arguments, stream);
  } else if constexpr (Filter < 7) {
    if constexpr (kWidest == 8 && Stride == 2) {
      if (columns == 2) {
        return launch_strip_weight_tiling<T, Filter, Stride, 2, true>(lanes, threads, arguments, stream);
      }
    }
    constexpr int kOther = kWidest == 4 ? 2 : 8;
    launch_strip_weight_tiling<T, Filter, Stride, kOther, true>(lanes, threads, arguments, stream);
  }
}

template <class T>
void launch_strip_weight_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                               Stream stream) {
  const int64_t lanes = plan["lanes"], slices = plan["slices"];
  int64_t columns = plan["columns"];
  bool aligned = plan["aligned"] != 0;
  const auto address =
      reinterpret_cast<uintptr_t>(pointers.input) | reinterpret_cast<uintptr_t>(pointers.output_grad);
  if (address % (columns * sizeof(T)) != 0) {  // a view that starts inside an allocation
    aligned = false;
    columns = 4;
  }
  const StripWeightGeometry geometry = strip_weight_geometry(problem, columns, lanes);
  StripWeightArguments arguments{};
  arguments.input = pointers.input;
  arguments.output_grad = pointers.output_grad;
  arguments.result = slices == 1 ? pointers.result : pointers.workspace;
  arguments.channels = static_cast<int>(problem.out_channels);
  arguments.slices = static_cast<int>(slices);
  arguments.in_height = static_cast<int>(problem.in_height);
  arguments.in_width = static_cast<int>(problem.in_width);
  arguments.out_height = static_cast<int>(problem.out_height);
  arguments.out_width = static_cast<int>(problem.out_width);
  arguments.padding_top = static_cast<int>(problem.padding_top);
  arguments.first_column = static_cast<int>(problem.filter_width / 2 - problem.padding_left);
  arguments.lead = static_cast<int>(geometry.lead);
  arguments.strips = static_cast<int>(geometry.strips);
  arguments.segment_lanes = static_cast<int>(geometry.segment_lanes);
  arguments.segments = static_cast<int>(geometry.segments);
  arguments.units = geometry.units(problem);
  arguments.tiles = FastDivide(static_cast<uint32_t>(geometry.tiles));
  arguments.groups = FastDivide(static_cast<uint32_t>(geometry.groups));

  const uint32_t threads = static_cast<uint32_t>(
      std::min(plan["threads"], strip_weight_threads(lanes, problem.filter_height, columns, aligned)));
  with_filter_and_stride(problem, [&](auto filter, auto stride) {
    launch_strip_weight_filter<T, filter.value, stride.value>(columns, aligned, lanes, threads, arguments,
                                                              stream);
  });
  if (slices > 1) {
    sum_slices<T>(pointers.workspace, pointers.result, slices, problem.out_channels,
                  problem.filter_height * problem.filter_width, false, stream);
  }
}

// The build writes a source for each instance.
template void launch_strip_weight_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&,
                                                        Stream);

}  // namespace convx::depthwise
