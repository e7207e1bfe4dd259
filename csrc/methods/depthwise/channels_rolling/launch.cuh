// The launcher of the channels_rolling family for one element type.
#pragma once
#include <type_traits>

#include "methods/depthwise/channels_rolling/kernel.cuh"
#include "methods/depthwise/family.h"

namespace convx::depthwise::channels_rolling {

template <class T, int Filter, int Channels, bool Whole>
void launch_form(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const int rows = static_cast<int>(plan["rows"]);
  const int64_t slices = plan["slices"];
  const RollingShape shape = {channels::shape_of(problem, Channels, kColumns, rows, slices, kThreads), rows};
  const bool gradient = problem.operation == Operation::input_grad;
  constexpr int kBlocks = blocks_of(Filter, Channels, std::is_same<T, float16>::value);
  launch_in_turn(channels_last_rolling<T, Filter, Channels, Whole, kBlocks>, "depthwise channels_rolling",
                 Grid{static_cast<uint32_t>(shape.blocks * slices)}, kThreads, 0, stream,
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
