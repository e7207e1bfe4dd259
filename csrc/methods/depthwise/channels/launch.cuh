// The launcher of the channels family for one element type.
#pragma once
#include "methods/depthwise/channels/kernel.cuh"
#include "methods/depthwise/channels/tiles.h"
#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "platform/gpu/overlap.h"
#include "problem/sweep.h"

namespace convx::depthwise::channels {

template <class T, int Filter, int Stride, bool Transposed, int Channels, TileSize Size>
void launch_tile(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  constexpr Tile kTile = tile_of(Filter, Stride, Transposed, Channels == 2, Size);
  if constexpr (kTile.columns > 0) {
    const bool gradient = problem.operation == Operation::input_grad;
    ChannelsShape shape;
    shape.channels = static_cast<int>(problem.in_channels);
    const Sweep sweep = sweep_of(problem);
    shape.source_height = static_cast<int>(sweep.source_height);
    shape.source_width = static_cast<int>(sweep.source_width);
    shape.result_height = static_cast<int>(sweep.result_height);
    shape.result_width = static_cast<int>(sweep.result_width);
    shape.turn_filter = sweep.flipped;
    shape.padding_top = static_cast<int>(sweep.top);
    shape.padding_left = static_cast<int>(sweep.left);
    const int hidden_rows = Transposed ? shape.padding_top % Stride : 0;
    const int hidden_columns = Transposed ? shape.padding_left % Stride : 0;
    shape.row_tiles = (shape.result_height + hidden_rows + kTile.rows - 1) / kTile.rows;
    shape.column_tiles = (shape.result_width + hidden_columns + kTile.columns - 1) / kTile.columns;
    const uint32_t slices = static_cast<uint32_t>(plan["slices"]);
    const uint32_t units = static_cast<uint32_t>(problem.batch * shape.row_tiles);
    shape.slice_units = units / slices;
    shape.longer_slices = units % slices;
    const int64_t vectors = problem.in_channels / Channels;
    shape.blocks = static_cast<uint32_t>((vectors * shape.column_tiles + kThreads - 1) / kThreads);
    shape.divide_vectors = FastDivide(static_cast<uint32_t>(vectors));
    shape.filter_words = FastDivide(static_cast<uint32_t>(vectors * Filter * Filter));
    shape.divide_blocks = FastDivide(shape.blocks);
    shape.divide_row_tiles = FastDivide(static_cast<uint32_t>(shape.row_tiles));
    launch_in_turn(
        channels_last<T, Filter, Stride, Transposed, Channels, kTile.columns, kTile.rows, kTile.depth,
                      kTile.resident, is_staged(Filter, Size), kTile.blocks, Size == kSmall>,
        "depthwise channels", Grid{shape.blocks * slices}, kThreads, 0, stream,
        static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
        static_cast<const T*>(pointers.weight), initial_bias<T>(problem, pointers),
        static_cast<T*>(pointers.result), shape, finishing_of<T>(problem, pointers));
  }
}

template <class T, int Filter, int Stride, bool Transposed>
void launch_channels_of(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                        Stream stream) {
  if constexpr (sizeof(T) == 2) {
    const bool gradient = problem.operation == Operation::input_grad;
    // Pairs of channels are one load; memory that begins at an odd element is rare.
    if (plan["channels"] == 1 ||
        !is_aligned(gradient ? pointers.output_grad : pointers.input, 2 * sizeof(T)) ||
        !is_aligned(pointers.result, 2 * sizeof(T)) || !is_aligned(pointers.weight, 2 * sizeof(T))) {
      return launch_tile<T, Filter, Stride, Transposed, 1, kSmall>(plan, problem, pointers, stream);
    }
  }
  constexpr int kChannels = sizeof(T) == 2 ? 2 : 1;
  switch (plan["tile"]) {
    case kLarge:
      return launch_tile<T, Filter, Stride, Transposed, kChannels, kLarge>(plan, problem, pointers, stream);
    case kSmall:
      return launch_tile<T, Filter, Stride, Transposed, kChannels, kSmall>(plan, problem, pointers, stream);
    case kMedium:
      return launch_tile<T, Filter, Stride, Transposed, kChannels, kMedium>(plan, problem, pointers, stream);
    default:
      return launch_tile<T, Filter, Stride, Transposed, kChannels, kTiny>(plan, problem, pointers, stream);
  }
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  with_filter_and_stride(problem, [&](auto filter, auto stride) {
    constexpr int kFilter = filter.value, kStride = stride.value;
    if constexpr (kStride == 2) {
      if (problem.operation == Operation::input_grad) {
        return launch_channels_of<T, kFilter, kStride, true>(plan, problem, pointers, stream);
      }
    }
    launch_channels_of<T, kFilter, kStride, false>(plan, problem, pointers, stream);
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::channels
