// What launchers tell the kernels.
#pragma once
#include "methods/deep/kernel.cuh"
#include "methods/matrix/pack.cuh"

namespace convx::deep {

inline Shape shape_of(const matrix::Product& product, const Tiling& t, const Geometry& g) {
  Shape shape{};
  shape.filters = static_cast<int>(product.rows), shape.channels = static_cast<int>(product.depth);
  shape.step_pairs = static_cast<int>(g.step_pairs), shape.warp_pairs = static_cast<int>(g.warp_pairs);
  shape.pixels = static_cast<uint32_t>(product.columns);
  shape.ranks = divide_by(t.ranks), shape.pairs = divide_by(g.pairs);
  shape.exchange_at = static_cast<int>(g.exchange_at);
  return shape;
}

inline Grid grid_of(const Tiling& t, const Geometry& g) {
  return {static_cast<uint32_t>(g.blocks), 1, 1, static_cast<uint32_t>(t.ranks)};
}

inline matrix::PackShape pack_shape_of(const matrix::Product& product, const Geometry& g, int64_t bytes) {
  matrix::PackShape shape{};
  shape.words = bytes / 4;
  shape.rows = static_cast<int>(product.rows), shape.depth = static_cast<int>(product.depth);
  shape.steps = static_cast<int>(2 * g.step_pairs), shape.m_tiles = static_cast<int>(2 * g.pairs);
  return shape;
}

// Calls body with the kernel of a tiling, and the threads of its blocks.
template <Precision Kind, bool Taps, int Fragments = 1, class Body>
void with_kernel(const Tiling& t, const Body& body) {
  using T = typename matrix::Types<Kind>::Element;
  if constexpr (Fragments < kMostFragments) {
    if (t.fragments != Fragments) return with_kernel<Kind, Taps, Fragments + 1>(t, body);
  }
  matrix::with_matrix_lanes(t.lanes, [&](auto lanes) {
    constexpr int kLanes = lanes.value;
    const auto threads = static_cast<uint32_t>(kWarps * kLanes);
    if constexpr (has_kernel(Fragments, true, Taps)) {
      if (t.planes) return body(deep_kernel<Kind, kLanes, Fragments, true, Taps, T>, threads);
    }
    body(deep_kernel<Kind, kLanes, Fragments, false, Taps, T>, threads);
  });
}

// Filters that a kernel rounds or parts itself are kept as they are.
template <Precision Kind>
void launch_pack(const char* name, const matrix::PackShape& shape, int64_t lanes, const void* weight,
                 void* packed, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  constexpr Precision kPacked = matrix::element_bytes(Kind) == 4 ? matrix::kFloat32 : Kind;
  matrix::with_matrix_lanes(lanes, [&](auto of) {
    launch_kernel(matrix::pack_kernel<kPacked, of.value, T, matrix::ChannelOrder>, name,
                  Grid{static_cast<uint32_t>(divide_up(shape.words, matrix::kPackThreads))},
                  matrix::kPackThreads, 0, stream, static_cast<const T*>(weight),
                  static_cast<uint32_t*>(packed), shape, matrix::ChannelOrder());
  });
}

}  // namespace convx::deep
