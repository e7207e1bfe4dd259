// What the launchers of both forms do alike.
#pragma once
#include <type_traits>

#include "methods/inverted_residual/geometry.h"
#include "plan/launch.h"
#include "problem/block_problem.h"

namespace convx::inverted_residual {

inline int number(int64_t value) {
  return static_cast<int>(value);
}

// run(filter, stride), whose types have the values: of sizes that are fixed when kernels are compiled.
template <class Run>
void with_sizes(const BlockProblem& p, const Run& run) {
  const auto with_filter = [&](auto filter) {
    p.stride == 1 ? run(filter, std::integral_constant<int, 1>())
                  : run(filter, std::integral_constant<int, 2>());
  };
  p.filter == 3 ? with_filter(std::integral_constant<int, 3>())
                : with_filter(std::integral_constant<int, 5>());
}

// What has the same name in a form's arguments as in the other's.
template <class Arguments, class Tiling, class Geometry>
Arguments shared_arguments(const BlockProblem& p, const Tiling& t, const Geometry& g,
                           const Pointers& pointers) {
  Arguments a{};
  a.source = static_cast<decltype(a.source)>(pointers.input);
  a.filters = static_cast<const unsigned char*>(pointers.packed_weight);
  a.bias = reinterpret_cast<const float*>(a.filters + g.chunks * g.chunk_bytes);
  a.result = static_cast<decltype(a.result)>(pointers.result);
  a.has_residual = p.has_residual;
  a.activation = p.activation, a.output_activation = p.output_activation;
  a.channels = number(p.channels), a.height = number(p.expanded_height), a.width = number(p.expanded_width);
  a.out_height = number(p.out_height), a.out_width = number(p.out_width);
  a.out_channels = number(p.out_channels), a.out_pairs = number(g.out_pairs);
  a.tile_height = number(t.tile_height);
  a.tiles = divide_by(g.tiles_down * g.tiles_across), a.tiles_across = divide_by(g.tiles_across);
  a.expanded_channels = number(p.expanded_channels), a.chunks = number(g.chunks);
  a.by_ranks = divide_by(t.ranks), a.rank_chunks = number(g.rank_chunks);
  a.result_tiles = number(g.result_tiles);
  a.expand_bias_at = number(g.expand_bias_at), a.depthwise_at = number(g.depthwise_at);
  a.project_at = number(g.project_at), a.chunk_bytes = number(g.chunk_bytes);
  a.ring_at = number(g.ring_at), a.ring = number(g.ring), a.ring_bytes = number(g.ring * g.chunk_bytes),
  a.ahead = number(t.ahead);
  a.barriers_at = number(g.barriers_at), a.exchange_at = number(g.exchange_at);
  return a;
}

}  // namespace convx::inverted_residual
