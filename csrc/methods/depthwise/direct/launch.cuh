// The launcher of the direct family for one element type.
#pragma once
#include "methods/depthwise/direct/correlate.cuh"
#include "methods/depthwise/direct/geometry.h"
#include "methods/depthwise/direct/weight_grad.cuh"
#include "methods/depthwise/family.h"
#include "platform/gpu/overlap.h"
#include "problem/divide.h"

namespace convx::depthwise::direct {

// Distances between elements of a dense tensor.
struct Pitch {
  int64_t image, plane, row, column;
};
inline Pitch pitch_of(Layout layout, int64_t channels, int64_t height, int64_t width) {
  if (layout == Layout::nhwc) return {channels * height * width, 1, channels * width, channels};
  return {channels * height * width, height * width, width, 1};
}

inline Axis device_axis(const AxisGeometry& geometry, bool gradient, int64_t tile) {
  Axis axis;
  axis.source_size = static_cast<int>(gradient ? geometry.out_size : geometry.in_size);
  axis.result_size = static_cast<int>(gradient ? geometry.in_size : geometry.out_size);
  axis.filter = static_cast<int>(geometry.filter);
  axis.dilation = static_cast<int>(geometry.dilation);
  axis.padding = static_cast<int>(geometry.padding);
  axis.stride = static_cast<int>(geometry.stride);
  axis.source_step = gradient ? 1 : axis.stride;
  axis.result_step = gradient ? axis.stride : 1;
  axis.spacing = static_cast<int>(geometry.spacing);
  axis.period = static_cast<int>(geometry.period);
  axis.phases = gradient ? 1 : static_cast<int>(geometry.phases());
  axis.tiles = static_cast<int>(tiles_of(geometry.lattice(gradient), geometry.spacing, tile));
  axis.divide_spacing = divide_by(geometry.spacing);
  return axis;
}

template <class T, bool Gradient, int Rows, int Columns, bool Wide>
void launch_correlate(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Pitch in = pitch_of(problem.layout, problem.in_channels, problem.in_height, problem.in_width);
  const Pitch out = pitch_of(problem.layout, problem.out_channels, problem.out_height, problem.out_width);
  const Pitch& source = Gradient ? out : in;
  const Pitch& result = Gradient ? in : out;

  CorrelateShape shape;
  shape.rows = device_axis(row_axis(problem), Gradient, Rows);
  shape.columns = device_axis(column_axis(problem), Gradient, Columns);
  shape.batch = problem.batch;
  shape.source_channels = static_cast<int>(Gradient ? problem.out_channels : problem.in_channels);
  shape.result_channels = static_cast<int>(Gradient ? problem.in_channels : problem.out_channels);
  shape.source_image = source.image;
  shape.source_row = source.row;
  shape.source_plane = source.plane;
  shape.source_column = static_cast<int>(source.column);
  shape.result_image = result.image;
  shape.result_row = result.row;
  shape.result_plane = result.plane;
  shape.result_column = static_cast<int>(result.column);
  shape.multiplier = static_cast<int>(problem.out_channels_per_group());
  shape.sources = Gradient ? shape.multiplier : 1;
  shape.channels_last = problem.layout == Layout::nhwc;
  shape.block_tiles = static_cast<int>(plan["tiles"]);
  shape.block_channels = static_cast<int>(plan["channels"]);
  shape.block_images = static_cast<int>(plan["images"]);
  shape.window_rows = static_cast<int>(plan["window_rows"]);
  shape.window_chunks = static_cast<int>(plan["window_chunks"]);

  const int64_t tiles = int64_t{shape.rows.tiles} * shape.columns.tiles;
  const int64_t tile_blocks = divide_up(tiles, shape.block_tiles);
  const int64_t residue_columns = Gradient ? column_axis(problem).residues() : 1;
  const int64_t residues = Gradient ? row_axis(problem).residues() * residue_columns : 1;
  const int64_t channel_blocks = divide_up(shape.result_channels, shape.block_channels);
  const int64_t blocks =
      tile_blocks * residues * channel_blocks * divide_up(problem.batch, shape.block_images);
  shape.divide_inner = divide_by(shape.channels_last ? shape.block_channels : shape.block_tiles);
  shape.divide_outer = divide_by(shape.channels_last ? shape.block_tiles : shape.block_channels);
  shape.divide_tile_blocks = divide_by(tile_blocks);
  shape.divide_residues = divide_by(residues);
  shape.divide_channel_blocks = divide_by(channel_blocks);
  shape.divide_tile_columns = divide_by(shape.columns.tiles);
  shape.divide_residue_columns = divide_by(residue_columns);
  shape.divide_block_channels = divide_by(shape.block_channels);
  shape.divide_window_chunks = divide_by(shape.window_chunks);

  const uint32_t shared_bytes = static_cast<uint32_t>(shape.window_rows * shape.window_chunks *
                                                      shape.block_channels * kChunk * sizeof(Accumulator<T>));
  launch_in_turn(correlate<T, Gradient, Rows, Columns, Wide>, "depthwise direct",
                 Grid{static_cast<uint32_t>(blocks)}, static_cast<uint32_t>(plan["threads"]), shared_bytes,
                 stream, static_cast<const T*>(Gradient ? pointers.output_grad : pointers.input),
                 static_cast<const T*>(pointers.weight), initial_bias<T>(problem, pointers),
                 static_cast<T*>(pointers.result), shape, finishing_of<T>(problem, pointers));
}

template <int Lanes, class T, bool ChannelsLast, int TapRows, int TapColumns>
void launch_weight_grad(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  const Pitch in = pitch_of(problem.layout, problem.in_channels, problem.in_height, problem.in_width);
  const Pitch out = pitch_of(problem.layout, problem.out_channels, problem.out_height, problem.out_width);
  const AxisGeometry row = row_axis(problem);

  WeightShape shape;
  shape.batch = problem.batch;
  shape.in_height = static_cast<int>(problem.in_height);
  shape.in_width = static_cast<int>(problem.in_width);
  shape.out_height = static_cast<int>(problem.out_height);
  shape.out_width = static_cast<int>(problem.out_width);
  shape.out_channels = static_cast<int>(problem.out_channels);
  shape.multiplier = static_cast<int>(problem.out_channels_per_group());
  shape.in_image = in.image;
  shape.in_plane = in.plane;
  shape.in_row = in.row;
  shape.in_column = static_cast<int>(in.column);
  shape.out_image = out.image;
  shape.out_plane = out.plane;
  shape.out_row = out.row;
  shape.out_column = static_cast<int>(out.column);
  shape.filter_height = static_cast<int>(problem.filter_height);
  shape.filter_width = static_cast<int>(problem.filter_width);
  shape.stride_h = static_cast<int>(problem.stride_h);
  shape.stride_w = static_cast<int>(problem.stride_w);
  shape.dilation_h = static_cast<int>(problem.dilation_h);
  shape.dilation_w = static_cast<int>(problem.dilation_w);
  shape.padding_top = static_cast<int>(problem.padding_top);
  shape.padding_left = static_cast<int>(problem.padding_left);
  shape.spacing = static_cast<int>(row.spacing);
  shape.period = static_cast<int>(row.period);
  shape.phases = static_cast<int>(row.phases());
  shape.tap_row_blocks = static_cast<int>(divide_up(row.taps_of_phase(), TapRows));
  shape.tap_column_blocks = static_cast<int>(divide_up(problem.filter_width, TapColumns));
  shape.tap_blocks = shape.phases * shape.tap_row_blocks * shape.tap_column_blocks;
  shape.tile_rows = static_cast<int>(tiles_of(row.lattice(false), row.spacing, kWeightRows));
  shape.units = problem.batch * shape.tile_rows;
  shape.slices = plan["slices"];
  shape.channel_blocks =
      static_cast<int>(ChannelsLast ? divide_up(problem.out_channels, Lanes) : problem.out_channels);
  shape.divide_spacing = divide_by(row.spacing);
  shape.divide_tile_rows = divide_by(shape.tile_rows);
  shape.divide_out_width = divide_by(problem.out_width);

  const int64_t blocks = shape.slices * shape.tap_blocks * shape.channel_blocks;
  launch_in_turn(
      weight_grad<Lanes, T, ChannelsLast, TapRows, TapColumns>, "depthwise direct weight_grad",
      Grid{static_cast<uint32_t>(blocks)}, kWeightThreads, 0, stream,
      WeightArguments<T>{static_cast<const T*>(pointers.input), static_cast<const T*>(pointers.output_grad),
                         static_cast<T*>(pointers.result), static_cast<Accumulator<T>*>(pointers.workspace),
                         shape});
  if (shape.slices > 1) {
    sum_slices<T>(pointers.workspace, pointers.result, shape.slices, problem.out_channels,
                  problem.filter_height * problem.filter_width, false, stream);
  }
}

template <class T, bool Gradient, int Rows>
void launch_rows(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const void* source = Gradient ? pointers.output_grad : pointers.input;
  const size_t wide_bytes = sizeof(Vector<T, 4>) < 16 ? sizeof(Vector<T, 4>) : 16;
  if (plan["columns"] == 1) {
    launch_correlate<T, Gradient, Rows, 1, false>(plan, problem, pointers, stream);
  } else if (plan["vector"] > 1 && is_aligned(source, wide_bytes) &&
             is_aligned(pointers.result, wide_bytes)) {
    launch_correlate<T, Gradient, Rows, 4, true>(plan, problem, pointers, stream);
  } else {
    launch_correlate<T, Gradient, Rows, 4, false>(plan, problem, pointers, stream);
  }
}

template <class T, bool Gradient>
void launch_correlation(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  if (plan["rows"] == 4) {
    launch_rows<T, Gradient, 4>(plan, problem, pointers, stream);
  } else {
    launch_rows<T, Gradient, 1>(plan, problem, pointers, stream);
  }
}

template <int Lanes, class T, bool ChannelsLast>
void launch_taps(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  switch (plan["tap_rows"]) {
    case 3:
      return launch_weight_grad<Lanes, T, ChannelsLast, 3, 3>(plan, problem, pointers, stream);
    case 5:
      return launch_weight_grad<Lanes, T, ChannelsLast, 5, 5>(plan, problem, pointers, stream);
    default:
      return launch_weight_grad<Lanes, T, ChannelsLast, 4, 8>(plan, problem, pointers, stream);
  }
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.operation == Operation::weight_grad) {
    with_lanes(plan["lanes"], [&](auto lanes) {
      if (problem.layout == Layout::nhwc) {
        launch_taps<decltype(lanes)::value, T, true>(plan, problem, pointers, stream);
      } else {
        launch_taps<decltype(lanes)::value, T, false>(plan, problem, pointers, stream);
      }
    });
  } else if (problem.operation == Operation::input_grad) {
    launch_correlation<T, true>(plan, problem, pointers, stream);
  } else {
    launch_correlation<T, false>(plan, problem, pointers, stream);
  }
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::direct
