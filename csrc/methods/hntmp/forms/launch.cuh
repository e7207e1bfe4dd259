// From a plan to a launch of one of the paper's forms.
#pragma once
#include <iterator>
#include <stdexcept>
#include <utility>

#include "methods/hntmp/forms/forms.h"
#include "methods/hntmp/forms/kernels.cuh"

namespace convx::hntmp::forms {

using Kernel = void(Arguments);

// Of every shape, for filters of that side.
template <int Side, int... At>
Kernel* published_of(const Tiling& t, std::integer_sequence<int, At...>) {
  Kernel* found = nullptr;
  ((t.rows == kPublishedShapes[At].rows && t.columns == kPublishedShapes[At].columns
        ? found = published_kernel<Side, kPublishedShapes[At].rows, kPublishedShapes[At].columns>
        : nullptr),
   ...);
  return found;
}

template <int Side>
Kernel* kernel_of(const Tiling& t) {
  switch (t.form) {
    case kPublished:
      return published_of<Side>(t, std::make_integer_sequence<int, std::size(kPublishedShapes)>());
    case kDirect:
      return direct_kernel<Side, false>;
    default:
      return direct_kernel<Side, true>;
  }
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Sweep s = sweep_of(problem);
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(s, t);
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  Arguments a{};
  a.source = static_cast<const T*>(pointers.input);
  a.weight = static_cast<const T*>(t.form == kPublished ? pointers.packed_weight : pointers.weight);
  a.bias = initial_bias<T>(problem, pointers);
  a.result = static_cast<T*>(pointers.result);
  a.source_channels = number(s.source_channels), a.result_channels = number(s.result_channels);
  a.source_height = number(s.source_height), a.source_width = number(s.source_width);
  a.result_height = number(s.result_height), a.result_width = number(s.result_width);
  a.top = number(s.top), a.left = number(s.left);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.channel_blocks = divide_by(g.channel_blocks);
  a.finishing = finishing_of<T>(problem, pointers);
  static_assert(std::size(kFilterSides) == 2, "each has its branch");
  Kernel* const kernel = s.filter_width == 1 ? kernel_of<1>(t) : kernel_of<3>(t);
  if (kernel == nullptr) throw std::logic_error("convx: no hntmp kernel for " + describe(plan));
  Grid grid;
  grid.x = static_cast<uint32_t>(g.blocks);
  launch_in_turn(kernel, kNames[t.form], grid, kThreads, 0,
                 pointers.packed_just_now ? stream.without_overlap() : stream, a);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::hntmp::forms
