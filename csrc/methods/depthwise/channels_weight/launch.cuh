// Starts channels_weight's kernels for one element type; launch_<dtype>.cu instantiate it.
#pragma once
#include "../dispatch.h"
#include "../family.h"
#include "kernel.cuh"
#include "tiles.h"

namespace convx::depthwise {

template <class T, int Filter, int Stride, int Channels, int Columns>
void launch_channels_weight_tiling(int64_t lanes, uint32_t threads, const ChannelsWeightArguments& arguments,
                                   Stream stream) {
  const Grid grid{static_cast<uint32_t>(arguments.blocks) * static_cast<uint32_t>(arguments.slices)};
  const uint32_t shared = arguments.shares > 1 ? Filter * Filter * threads * 4 : 16;
  with_lanes(lanes, [&](auto width) {
    if constexpr (channels_weight_fits(width.value, Filter, Channels, Columns)) {
      launch_in_turn(channels_weight_kernel<T, width.value, Filter, Stride, Channels, Columns>,
                     "depthwise channels_weight", grid, threads, shared, stream, arguments);
    }
  });
}

template <class T, int Filter, int Stride>
void launch_channels_weight_filter(int64_t channels, int64_t columns, int64_t lanes, uint32_t threads,
                                   const ChannelsWeightArguments& arguments, Stream stream) {
  if constexpr (Filter == 7) {
    return launch_channels_weight_tiling<T, 7, Stride, 1, 4>(lanes, threads, arguments, stream);
  } else if constexpr (sizeof(T) == 2) {
    if (channels == 2 && columns == 7) {
      return launch_channels_weight_tiling<T, Filter, Stride, 2, 7>(lanes, threads, arguments, stream);
    }
    if constexpr (Filter == 5) {
      if (channels == 2) {
        return launch_channels_weight_tiling<T, Filter, Stride, 2, 4>(lanes, threads, arguments, stream);
      }
    }
  } else if constexpr (Filter == 3 && Stride == 1) {
    if (channels == 2) {
      return launch_channels_weight_tiling<T, Filter, Stride, 2, 7>(lanes, threads, arguments, stream);
    }
  }
  if constexpr (Filter < 7) {
    launch_channels_weight_tiling<T, Filter, Stride, 1, 7>(lanes, threads, arguments, stream);
  }
}

template <class T>
void launch_channels_weight_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                                  Stream stream) {
  const int64_t lanes = plan["lanes"], slices = plan["slices"], across = plan["across"];
  int64_t channels = plan["channels"], columns = plan["columns"];
  const auto address =
      reinterpret_cast<uintptr_t>(pointers.input) | reinterpret_cast<uintptr_t>(pointers.output_grad);
  if (address % (channels * sizeof(T)) != 0) {  // a view that starts at an odd element
    channels = 1;
    columns = problem.filter_height == 7 ? 4 : 7;
  }
  const ChannelsWeightGeometry geometry =
      channels_weight_geometry(problem, channels, columns, plan["tiles_across"] != 0, across, plan["rows"]);
  const bool direct = geometry.partials(slices) == 1;
  ChannelsWeightArguments arguments{};
  arguments.input = pointers.input;
  arguments.output_grad = pointers.output_grad;
  arguments.result = direct ? pointers.result : pointers.workspace;
  arguments.channels = static_cast<int>(problem.in_channels);
  arguments.slices = static_cast<int>(slices);
  arguments.blocks = static_cast<int>(geometry.blocks);
  arguments.in_height = static_cast<int>(problem.in_height);
  arguments.in_width = static_cast<int>(problem.in_width);
  arguments.out_height = static_cast<int>(problem.out_height);
  arguments.out_width = static_cast<int>(problem.out_width);
  arguments.padding_top = static_cast<int>(problem.padding_top);
  arguments.padding_left = static_cast<int>(problem.padding_left);
  arguments.across = static_cast<int>(across);
  arguments.across_tiles = static_cast<int>(geometry.across_tiles);
  arguments.shares = static_cast<int>(plan["shares"]);
  arguments.first_step = static_cast<int>(geometry.first_step);
  arguments.end_step = static_cast<int>(geometry.first_step + geometry.steps);
  arguments.chunk_steps = static_cast<int>(plan["rows"]);
  arguments.units = geometry.units(problem);
  arguments.pixel_bytes = static_cast<uint32_t>(problem.in_channels * sizeof(T));
  arguments.in_row_bytes = static_cast<uint32_t>(problem.in_width) * arguments.pixel_bytes;
  arguments.out_row_bytes = static_cast<uint32_t>(problem.out_width) * arguments.pixel_bytes;
  arguments.vectors = FastDivide(static_cast<uint32_t>(geometry.vectors));
  arguments.unit_tiles = FastDivide(static_cast<uint32_t>(geometry.tiles / geometry.across_tiles));
  arguments.chunks = FastDivide(static_cast<uint32_t>(geometry.chunks));

  const uint32_t threads = static_cast<uint32_t>(divide_up(across * arguments.shares, lanes) * lanes);
  with_filter_and_stride(problem, [&](auto filter, auto stride) {
    launch_channels_weight_filter<T, filter.value, stride.value>(channels, columns, lanes, threads, arguments,
                                                                 stream);
  });
  if (!direct) {
    sum_slices<T>(pointers.workspace, pointers.result, geometry.partials(slices), problem.out_channels,
                  problem.filter_height * problem.filter_width, true, stream);
  }
}

// The build writes a source for each instance.
template void launch_channels_weight_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&,
                                                           Stream);

}  // namespace convx::depthwise
