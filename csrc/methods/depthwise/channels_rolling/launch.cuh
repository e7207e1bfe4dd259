// The launcher of the channels_rolling family for one element type.
#pragma once
#include <type_traits>

#include "methods/depthwise/channels_rolling/kernel.cuh"
#include "methods/depthwise/family.h"
#include "problem/sweep.h"

namespace convx::depthwise::channels_rolling {

template <class T, int Filter, int Channels, bool Whole>
void launch_form(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep sweep = sweep_of(problem);
  RollingShape shape;
  shape.channels = static_cast<int>(problem.in_channels);
  shape.source_height = static_cast<int>(sweep.source_height);
  shape.source_width = static_cast<int>(sweep.source_width);
  shape.result_height = static_cast<int>(sweep.result_height);
  shape.result_width = static_cast<int>(sweep.result_width);
  shape.padding_top = static_cast<int>(sweep.top);
  shape.padding_left = static_cast<int>(sweep.left);
  shape.turn_filter = sweep.flipped;
  shape.column_tiles = (shape.result_width + kColumns - 1) / kColumns;
  shape.rows = static_cast<int>(plan["rows"]);
  const int groups = (shape.result_height + shape.rows - 1) / shape.rows;
  const uint32_t units = static_cast<uint32_t>(problem.batch * groups);
  const uint32_t slices = static_cast<uint32_t>(plan["slices"]);
  shape.slice_units = units / slices;
  shape.longer_slices = units % slices;
  const int64_t vectors = problem.in_channels / Channels;
  shape.blocks = static_cast<uint32_t>((vectors * shape.column_tiles + kThreads - 1) / kThreads);
  shape.divide_vectors = divide_by(vectors);
  shape.divide_groups = divide_by(groups);
  shape.divide_blocks = FastDivide(shape.blocks);
  shape.filter_words = divide_by(vectors * Filter * Filter);
  const bool gradient = problem.operation == Operation::input_grad;
  constexpr int kBlocks = blocks_of(Filter, Channels, std::is_same<T, float16>::value);
  launch_in_turn(channels_last_rolling<T, Filter, Channels, Whole, kBlocks>, "depthwise channels_rolling",
                 Grid{shape.blocks * slices}, kThreads, 0, stream,
                 static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
                 static_cast<const T*>(pointers.weight), initial_bias<T>(problem, pointers),
                 static_cast<T*>(pointers.result), shape, finishing_of<T>(problem, pointers));
}

template <class T, int Filter>
void launch_filter(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  constexpr int kChannels = sizeof(T) == 2 ? 2 : 1;
  if constexpr (kChannels == 2) {
    // Pairs of channels are one load; memory that begins at an odd element is rare.
    const void* source = problem.operation == Operation::input_grad ? pointers.output_grad : pointers.input;
    if (plan["channels"] == 1 || !is_aligned(source, 2 * sizeof(T)) ||
        !is_aligned(pointers.result, 2 * sizeof(T)) || !is_aligned(pointers.weight, 2 * sizeof(T))) {
      return launch_form<T, Filter, 1, false>(plan, problem, pointers, stream);
    }
  }
  if (plan["whole"]) return launch_form<T, Filter, kChannels, true>(plan, problem, pointers, stream);
  launch_form<T, Filter, kChannels, false>(plan, problem, pointers, stream);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.filter_height == 5) return launch_filter<T, 5>(plan, problem, pointers, stream);
  launch_filter<T, 7>(plan, problem, pointers, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::depthwise::channels_rolling
