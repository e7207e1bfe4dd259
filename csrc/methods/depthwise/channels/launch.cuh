// The launcher of the channels family for one element type.
#pragma once
#include "methods/depthwise/channels/kernel.cuh"
#include "methods/depthwise/channels/tiles.h"
#include "methods/depthwise/dispatch.h"
#include "methods/depthwise/family.h"
#include "platform/gpu/overlap.h"

namespace convx::depthwise::channels {

template <class T, int Filter, int Stride, bool Transposed, int Channels, TileSize Size>
void launch_tile(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  constexpr Tile kTile = tile_of(Filter, Stride, Transposed, Channels == 2, Size);
  if constexpr (kTile.columns > 0) {
    const bool gradient = problem.operation == Operation::input_grad;
    const int64_t slices = plan["slices"];
    const ChannelsShape shape = shape_of(problem, Channels, kTile.columns, kTile.rows, slices, kThreads);
    launch_in_turn(
        channels_last<T, Filter, Stride, Transposed, Channels, kTile.columns, kTile.rows, kTile.depth,
                      kTile.resident, is_staged(Filter, Size), kTile.blocks, Size == kSmall>,
        "depthwise channels", Grid{static_cast<uint32_t>(shape.blocks * slices)}, kThreads, 0, stream,
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
