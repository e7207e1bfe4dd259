// The launcher of the tensor family for one precision.
#pragma once
#include "methods/matrix/pack.cuh"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/entry.cuh"
#include "methods/pointwise/tensor/kernel.cuh"
#include "methods/pointwise/tensor/schedule.h"

namespace convx::pointwise::tensor {

using matrix::with_matrix_lanes;

template <Precision Kind, Access How, int Lanes, class T>
void launch_access(const Plan& plan, int tile_index, Shape shape, const ConvProblem& problem,
                   const Pointers& pointers, Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  with_tile<Kind, How>(tile_index, [&](auto tile) {
    using Tile = decltype(tile);
    using Size = Sizes<Kind, Lanes, How, Tile>;
    const int64_t row_tiles = divide_up(shape.m_tiles, Tile::kRowTiles);
    const int64_t column_tiles =
        divide_up(columns_of<How, Size>(product, problem.batch), static_cast<int64_t>(Size::kColumns));
    shape.image_tiles = static_cast<uint32_t>(divide_up(shape.plane, static_cast<int64_t>(Size::kColumns)));
    // A plan for aligned memory may end here with a tile for elements, which has no say in these.
    const bool persistent = kPersistent<Lanes, How, Tile>;
    const int64_t column_blocks = divide_up(column_tiles, persistent ? plan["rounds"] : 1);
    shape.filters_stay = persistent && plan["filters_stay"] != 0;
    shape.row_tiles = FastDivide(static_cast<uint32_t>(row_tiles));
    shape.row_tiles_of_groups = FastDivide(static_cast<uint32_t>(row_tiles * problem.groups));
    shape.column_tiles = static_cast<uint32_t>(column_tiles);
    shape.column_blocks = static_cast<uint32_t>(column_blocks);
    shape.source_stage_bytes = static_cast<int>(Size::source_bytes(shape.plane));
    const int64_t shared_bytes = Size::shared_bytes(
        shape.plane, shape.steps, divide_up(column_tiles, column_blocks), shape.filters_stay);
    launch_in_turn(
        tensor_kernel<Kind, Lanes, How, Tile, T>, "pointwise tensor",
        Grid{static_cast<uint32_t>(row_tiles * problem.groups * column_blocks)}, Size::kThreads,
        static_cast<uint32_t>(shared_bytes), pointers.packed_just_now ? stream.without_overlap() : stream,
        static_cast<const uint32_t*>(pointers.packed_weight), static_cast<const T*>(pointers.weight),
        static_cast<const T*>(gradient ? pointers.output_grad : pointers.input),
        initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape,
        finishing_of<T>(problem, pointers));
  });
}

template <Precision Kind>
void launch_precision(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  using T = typename Types<Kind>::Element;
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const Access order = static_cast<Access>(plan["access"]);
  Shape shape = {};
  shape.rows = static_cast<int>(product.rows);
  shape.depth = static_cast<int>(product.depth);
  shape.steps = static_cast<int>(steps_of(Kind, order, product.depth));
  shape.m_tiles = static_cast<int>(row_tiles_of(order, product.rows));
  shape.images = static_cast<int>(problem.batch);
  shape.order = order;
  shape.source = other_pixels(problem, !gradient, product.same_pixels);
  shape.result = own_pixels(problem, gradient);
  shape.plane = static_cast<int>(shape.result.plane.divisor);
  shape.source_stride = channel_stride(problem, !gradient);
  shape.source_elements = gradient ? problem.output_elements() : problem.input_elements();
  shape.result_stride = channel_stride(problem, gradient);
  shape.filter_row = gradient ? 1 : product.depth;
  shape.filter_depth = gradient ? product.rows : 1;
  const void* const source = gradient ? pointers.output_grad : pointers.input;
  const int64_t elements = 16 / element_bytes(Kind);
  shape.source_pieces = product.depth % elements == 0 && is_aligned(source, 16);
  shape.result_pieces = product.rows % 8 == 0 && is_aligned(pointers.result, 16);
  const size_t piece = order == kShortRows ? 8 : 16;
  const bool pieces = is_aligned(source, piece) && is_aligned(pointers.result, piece);
  with_matrix_lanes(plan["lanes"], [&](auto lanes) {
    constexpr int kLanes = lanes.value;
    const int tile = static_cast<int>(plan["tile"]);
    if (order == kChannels) {
      return launch_access<Kind, kChannels, kLanes, T>(plan, tile, shape, problem, pointers, stream);
    }
    // Memory that does not begin at a piece is rare; the filters' order stays.
    if (order == kElements || !pieces) {
      return launch_access<Kind, kElements, kLanes, T>(plan, order == kElements ? tile : 0, shape, problem,
                                                       pointers, stream);
    }
    if (order == kRows)
      return launch_access<Kind, kRows, kLanes, T>(plan, tile, shape, problem, pointers, stream);
    if (order == kPlanes) {
      return launch_access<Kind, kPlanes, kLanes, T>(plan, tile, shape, problem, pointers, stream);
    }
    constexpr Access kOther = element_bytes(Kind) == 2 ? kShortRows : kShifted;
    launch_access<Kind, kOther, kLanes, T>(plan, tile, shape, problem, pointers, stream);
  });
}

template <Precision Kind>
void pack_precision(const Plan& plan, const ConvProblem& problem, const void* weight, void* packed,
                    Stream stream) {
  using T = typename Types<Kind>::Element;
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  matrix::PackShape shape = {};
  shape.words = plan.packed_weight_bytes / 4;
  shape.rows = static_cast<int>(product.rows);
  shape.depth = static_cast<int>(product.depth);
  const Order order = {static_cast<Access>(plan["access"])};
  shape.steps = static_cast<int>(steps_of(Kind, order.access, product.depth));
  shape.m_tiles = static_cast<int>(row_tiles_of(order.access, product.rows));
  shape.filter_row = gradient ? 1 : product.depth;
  shape.filter_depth = gradient ? product.rows : 1;
  with_matrix_lanes(plan["lanes"], [&](auto lanes) {
    launch_kernel(matrix::pack_kernel<Kind, lanes.value, T, Order>, "pointwise pack",
                  Grid{static_cast<uint32_t>(divide_up(shape.words, matrix::kPackThreads))},
                  matrix::kPackThreads, 0, stream, static_cast<const T*>(weight),
                  static_cast<uint32_t*>(packed), shape, order);
  });
}

// The build writes a source for each instance.
template void launch_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void pack_precision<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const void*, void*, Stream);

}  // namespace convx::pointwise::tensor
