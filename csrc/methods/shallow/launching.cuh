// What launchers tell the kernel.
#pragma once
#include <type_traits>

#include "methods/shallow/kernel.cuh"

namespace convx::shallow {

inline Shape shape_of(const matrix::Product& product, const Tiling& t, const Geometry& g,
                      Activation activation) {
  Shape shape{};
  shape.filters = static_cast<int>(product.rows), shape.channels = static_cast<int>(product.depth);
  shape.pairs = static_cast<int>(g.pairs), shape.block_pairs = static_cast<int>(t.block_pairs);
  shape.pixels = static_cast<uint32_t>(product.columns), shape.groups = static_cast<uint32_t>(g.groups);
  shape.pixel_blocks = static_cast<uint32_t>(t.pixel_blocks), shape.splits = divide_by(g.splits);
  shape.activation = activation;
  return shape;
}

// body(integral_constant) of a depth.
template <int Pairs, class Body>
void with_step_pairs(int64_t pairs, const Body& body) {
  if (pairs == Pairs) return body(std::integral_constant<int, Pairs>());
  if constexpr (Pairs < kMostPairs) with_step_pairs<Pairs + 1>(pairs, body);
}

}  // namespace convx::shallow
