// The launcher of the deep family for one precision.
#pragma once
#include "methods/deep/launching.cuh"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "platform/gpu/launch.h"

namespace convx::pointwise::deep {

using namespace convx::deep;

template <matrix::Precision Kind>
void launch_precision(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const Tiling t{plan["lanes"], plan["fragments"], plan["ranks"], has_planes(problem)};
  const Geometry g = geometry_of(product, t, element_size(problem.dtype));
  Shape shape = shape_of(product, t, g);
  shape.plane = divide_by(problem.in_height * problem.in_width);
  with_kernel<Kind, false>(t, [&](auto kernel, uint32_t threads) {
    launch_in_turn(kernel, "pointwise deep", grid_of(t, g), threads, static_cast<uint32_t>(g.shared_bytes),
                   pointers.packed_just_now ? stream.without_overlap() : stream,
                   static_cast<const uint32_t*>(pointers.packed_weight),
                   static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
                   initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape,
                   finishing_of<T>(problem, pointers));
  });
}

template <matrix::Precision Kind>
void pack_precision(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const int64_t lanes = plan["lanes"];
  const Geometry g = geometry_of(product, {lanes, 1, 1, false}, element_size(problem.dtype));
  matrix::PackShape shape = pack_shape_of(product, g, plan.packed_weight_bytes);
  shape.filter_row = gradient ? 1 : product.depth;
  shape.filter_depth = gradient ? product.rows : 1;
  launch_pack<Kind>("pointwise pack", shape, lanes, weight, packed, stream);
}

// The build writes a source for each instance.
template void launch_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void pack_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const void*, void*, Stream);

}  // namespace convx::pointwise::deep
