// The launcher of the shallow family for one element type.
#pragma once
#include "methods/matrix/types.cuh"
#include "methods/pointwise/family.h"
#include "methods/pointwise/shallow/kernel.cuh"
#include "platform/gpu/launch.h"

namespace convx::pointwise::shallow {

// body(integral_constant) of a depth.
template <int Pairs, class Body>
void with_step_pairs(int64_t pairs, const Body& body) {
  if (pairs == Pairs) return body(std::integral_constant<int, Pairs>());
  if constexpr (Pairs < kMostPairs) with_step_pairs<Pairs + 1>(pairs, body);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const Tiling t{plan["lanes"], plan["block_pairs"], plan["pixel_blocks"]};
  const Geometry g = geometry_of(product, t);
  Shape shape{};
  shape.filters = static_cast<int>(product.rows), shape.channels = static_cast<int>(product.depth);
  shape.pairs = static_cast<int>(g.pairs), shape.block_pairs = static_cast<int>(t.block_pairs);
  shape.pixels = static_cast<uint32_t>(product.columns), shape.groups = static_cast<uint32_t>(g.groups);
  shape.pixel_blocks = static_cast<uint32_t>(t.pixel_blocks), shape.splits = divide_by(g.splits);
  shape.activation = problem.epilogue.activation;
  matrix::with_matrix_lanes(t.lanes, [&](auto lanes) {
    constexpr int kLanes = lanes.value;
    const auto start = [&](auto kernel) {
      launch_in_turn(kernel, "pointwise shallow", Grid{static_cast<uint32_t>(g.blocks)},
                     static_cast<uint32_t>(kWarps * kLanes), static_cast<uint32_t>(g.shared_bytes),
                     pointers.packed_just_now ? stream.without_overlap() : stream,
                     static_cast<const uint32_t*>(pointers.packed_weight),
                     static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
                     initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape);
    };
    with_step_pairs<1>(g.step_pairs, [&](auto pairs) { start(shallow_kernel<kLanes, pairs.value, T>); });
  });
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::pointwise::shallow
