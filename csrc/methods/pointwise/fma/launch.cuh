// The launchers of the fma family for one element type.
#pragma once
#include "methods/pointwise/family.h"
#include "methods/pointwise/fma/kernel.cuh"
#include "methods/pointwise/product.h"
#include "methods/sums.cuh"
#include "platform/gpu/overlap.h"

namespace convx::pointwise::fma {

// Whether pieces of the pixels of an nchw tensor, or of the channels of a channels_last one, begin at
// multiples of themselves and do not pass a row's end.
inline bool has_pieces(const ConvProblem& problem, bool of_input, bool same_pixels, int64_t piece) {
  if (problem.layout == Layout::nhwc) {
    return (of_input ? problem.in_channels_per_group() : problem.out_channels_per_group()) % piece == 0;
  }
  const int64_t plane =
      of_input ? problem.in_height * problem.in_width : problem.out_height * problem.out_width;
  return same_pixels && plane % piece == 0;
}

template <class T, class Tile>
void set_tiles(Shape& shape, const Product& product, const ConvProblem& problem) {
  shape.rows = static_cast<int>(product.rows);
  shape.columns = static_cast<int>(product.columns);
  shape.groups = static_cast<uint32_t>(problem.groups);
  shape.row_tiles = static_cast<uint32_t>(divide_up(product.rows, Tile::kRows));
  shape.column_tiles = static_cast<uint32_t>(divide_up(product.columns, Tile::kColumns));
}

template <class T, class Tile, Role Kind>
uint32_t shared_bytes(int64_t depth) {
  const int64_t stages = std::min<int64_t>(kStages, divide_up(depth, kDepth<T>));
  return static_cast<uint32_t>(Block<T, Tile, Kind>::kSharedBytes / kStages * stages);
}

// Results that are staged take the stages' memory, or more than that.
template <class T, class Tile, Role Kind>
uint32_t product_bytes(const Shape& shape, int64_t depth) {
  constexpr uint32_t kResults = Tile::kRows * Tile::kColumns * sizeof(T);
  const uint32_t stages = shared_bytes<T, Tile, Kind>(depth);
  const bool staged = kStaged<T> && Kind == kNchw && !shape.result_pieces;
  return staged ? std::max(stages, kResults) : stages;
}

template <class T, Role Kind>
void launch_product(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const bool gradient = problem.operation == Operation::input_grad;
  const Product product = product_of(problem);
  const T* const filters = static_cast<const T*>(gradient ? pointers.packed_weight : pointers.weight);
  const T* const source = static_cast<const T*>(gradient ? pointers.output_grad : pointers.input);
  Shape shape = {};
  shape.depth = product.depth;
  shape.b_map = other_pixels(problem, !gradient, product.same_pixels);
  shape.result_map = own_pixels(problem, gradient);
  shape.b_channel_stride = channel_stride(problem, !gradient);
  shape.result_channel_stride = channel_stride(problem, gradient);
  shape.a_pieces = product.depth % kPiece<T> == 0 && is_aligned(filters, 16);
  shape.b_pieces = has_pieces(problem, !gradient, product.same_pixels, kPiece<T>) && is_aligned(source, 16);
  shape.result_pieces =
      has_pieces(problem, gradient, true, kTaken<T>) && is_aligned(pointers.result, kTaken<T> * sizeof(T));
  with_tile<sizeof(T), Kind>(static_cast<int>(plan["tile"]), [&](auto tile) {
    using Tile = decltype(tile);
    set_tiles<T, Tile>(shape, product, problem);
    launch_in_turn(multiply_kernel<T, Tile, Kind>, "pointwise fma",
                   Grid{shape.row_tiles * shape.column_tiles * shape.groups}, Tile::kThreads,
                   product_bytes<T, Tile, Kind>(shape, product.depth), stream, filters, source,
                   initial_bias<T>(problem, pointers), static_cast<T*>(pointers.result), shape,
                   finishing_of<T>(problem, pointers));
  });
}

template <class T, Role Kind>
void launch_weight(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  const Product product = product_of(problem);
  Shape shape = {};
  shape.depth = plan["slice"];
  const int64_t slices = divide_up(product.depth, shape.depth);
  shape.a_map = own_pixels(problem, false);
  shape.b_map = other_pixels(problem, true, product.same_pixels);
  shape.a_channel_stride = channel_stride(problem, false);
  shape.b_channel_stride = channel_stride(problem, true);
  shape.a_pieces = has_pieces(problem, false, true, kPiece<T>) && is_aligned(pointers.output_grad, 16);
  shape.b_pieces =
      has_pieces(problem, true, product.same_pixels, kPiece<T>) && is_aligned(pointers.input, 16);
  with_tile<sizeof(T), Kind>(static_cast<int>(plan["tile"]), [&](auto tile) {
    using Tile = decltype(tile);
    set_tiles<T, Tile>(shape, product, problem);
    launch_in_turn(weight_kernel<T, Tile, Kind>, "pointwise fma weight_grad",
                   Grid{static_cast<uint32_t>(shape.row_tiles * shape.column_tiles * shape.groups * slices)},
                   Tile::kThreads, shared_bytes<T, Tile, Kind>(shape.depth), stream,
                   static_cast<const T*>(pointers.output_grad), static_cast<const T*>(pointers.input),
                   static_cast<Accumulator<T>*>(pointers.workspace), shape);
  });
  sum_slices<T>(pointers.workspace, pointers.result, slices, problem.weight_elements(), 1, false, stream);
}

template <class T>
void launch_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers, Stream stream) {
  if (problem.layout == Layout::nhwc) {
    launch_product<T, kNhwc>(plan, problem, pointers, stream);
  } else {
    launch_product<T, kNchw>(plan, problem, pointers, stream);
  }
}

template <class T>
void launch_weight_typed(const Plan& plan, const ConvProblem& problem, const Pointers& pointers,
                         Stream stream) {
  if (problem.layout == Layout::nhwc) {
    launch_weight<T, kNhwcWeight>(plan, problem, pointers, stream);
  } else {
    launch_weight<T, kNchwWeight>(plan, problem, pointers, stream);
  }
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);
template void launch_weight_typed<CONVX_INSTANCE>(const Plan&, const ConvProblem&, const Pointers&, Stream);

}  // namespace convx::pointwise::fma
