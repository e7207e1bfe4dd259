// The launcher of the deep family for one precision.
#pragma once
#include <type_traits>

#include "methods/matrix/pack.cuh"
#include "methods/pointwise/deep/kernel.cuh"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "platform/gpu/launch.h"

namespace convx::pointwise::deep {

template <class Body>
void with_fragments(int64_t fragments, const Body& body) {
  if (fragments == 1) return body(std::integral_constant<int, 1>());
  if (fragments == 2) return body(std::integral_constant<int, 2>());
  body(std::integral_constant<int, kMostFragments>());
}

template <Precision Kind>
void launch_precision(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const Tiling t{plan["lanes"], plan["fragments"], plan["ranks"], has_planes(problem)};
  const Geometry g = geometry_of(product, t, element_size(problem.dtype));
  Shape shape{};
  shape.filters = static_cast<int>(product.rows), shape.channels = static_cast<int>(product.depth);
  shape.step_pairs = static_cast<int>(g.step_pairs);
  shape.pixels = static_cast<uint32_t>(product.columns);
  shape.ranks = divide_by(t.ranks), shape.pairs = divide_by(g.pairs);
  shape.plane = divide_by(problem.in_height * problem.in_width);
  shape.exchange_at = static_cast<int>(g.exchange_at);
  shape.filter_row = gradient ? 1 : product.depth;
  shape.filter_depth = gradient ? product.rows : 1;
  matrix::with_matrix_lanes(t.lanes, [&](auto lanes) {
    constexpr int kLanes = lanes.value;
    const auto launch = [&](auto fragments, auto planes) {
      launch_in_turn(deep_kernel<Kind, kLanes, fragments.value, planes.value, T>, "pointwise deep",
                     Grid{static_cast<uint32_t>(g.blocks), 1, 1, static_cast<uint32_t>(t.ranks)},
                     static_cast<uint32_t>(kWarps * kLanes), static_cast<uint32_t>(g.shared_bytes),
                     pointers.packed_just_now ? stream.without_overlap() : stream,
                     static_cast<const uint32_t*>(pointers.packed_weight),
                     static_cast<const T*>(pointers.weight),
                     static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
                     initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape,
                     finishing_of<T>(problem, pointers));
    };
    with_fragments(t.fragments, [&](auto fragments) {
      if (t.planes) return launch(fragments, std::true_type());
      launch(fragments, std::false_type());
    });
  });
}

template <Precision Kind>
void pack_precision(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const int64_t lanes = plan["lanes"];
  const Geometry g = geometry_of(product, {lanes, 1, 1, false}, element_size(problem.dtype));
  matrix::PackShape shape{};
  shape.words = plan.packed_weight_bytes / 4;
  shape.rows = static_cast<int>(product.rows), shape.depth = static_cast<int>(product.depth);
  shape.steps = static_cast<int>(2 * g.step_pairs), shape.m_tiles = static_cast<int>(2 * g.pairs);
  shape.filter_row = gradient ? 1 : product.depth;
  shape.filter_depth = gradient ? product.rows : 1;
  constexpr Precision kPacked = matrix::element_bytes(Kind) == 4 ? matrix::kFloat32 : Kind;
  matrix::with_matrix_lanes(lanes, [&](auto of) {
    launch_kernel(matrix::pack_kernel<kPacked, of.value, T, matrix::ChannelOrder>, "pointwise pack",
                  Grid{static_cast<uint32_t>(divide_up(shape.words, matrix::kPackThreads))},
                  matrix::kPackThreads, 0, stream, static_cast<const T*>(weight),
                  static_cast<uint32_t*>(packed), shape, matrix::ChannelOrder());
  });
}

// The build writes a source for each instance.
template void launch_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void pack_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const void*, void*, Stream);

}  // namespace convx::pointwise::deep
