// The launcher of the shallow family for one element type.
#pragma once
#include "methods/matrix/types.cuh"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/shallow/launching.cuh"
#include "platform/gpu/launch.h"

namespace convx::pointwise::shallow {

using namespace convx::shallow;

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const Tiling t{plan["lanes"], plan["block_pairs"], plan["pixel_blocks"]};
  const Geometry g = geometry_of(product, t);
  const Shape shape = shape_of(product, t, g, problem.epilogue.activation);
  matrix::with_matrix_lanes(t.lanes, [&](auto lanes) {
    constexpr int kLanes = lanes.value;
    const auto start = [&](auto kernel) {
      launch_in_turn(kernel, "pointwise shallow", Grid{static_cast<uint32_t>(g.blocks)},
                     static_cast<uint32_t>(kWarps * kLanes), static_cast<uint32_t>(g.shared_bytes),
                     pointers.packed_just_now ? stream.without_overlap() : stream,
                     static_cast<const uint32_t*>(pointers.packed_weight),
                     static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
                     initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape, Plain{});
    };
    with_step_pairs<1>(g.step_pairs,
                       [&](auto pairs) { start(shallow_kernel<kLanes, pairs.value, T, Plain>); });
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::pointwise::shallow
