// What the last two kernels read: filters as fragments, and matrices and biases as torch has them.
#pragma once
#include "methods/inverted_residual/banded/start.cuh"
#include "methods/inverted_residual/excited/geometry.h"
#include "methods/matrix/channel_order.cuh"
#include "methods/matrix/pack.cuh"

namespace convx::inverted_residual::excited {

// Zeros where there is nothing to be copied, and behind it as far as room is kept.
template <class T>
CONVX_KERNEL(kPackThreads, 1)
copy_kernel(const T* from, T* to, int count, int room) {
  for (int i = threadIdx.x; i < room; i += kPackThreads) {
    to[i] = from != nullptr && i < count ? from[i] : T{};
  }
}

template <class T>
void pack_fragments(const Geometry& g, const void* weight, unsigned char* packed, Stream stream) {
  constexpr auto kKind = std::is_same<T, bfloat16>::value ? matrix::kBfloat16 : matrix::kFloat16;
  matrix::PackShape shape = {};
  shape.words = g.projecting.pairs * g.projecting.step_pairs * 512;
  shape.rows = number(g.product.rows), shape.depth = number(g.product.depth);
  shape.steps = number(2 * g.projecting.step_pairs), shape.m_tiles = number(2 * g.projecting.pairs);
  shape.filter_row = g.product.depth, shape.filter_depth = 1;
  Grid grid;
  grid.x = static_cast<uint32_t>(divide_up(shape.words, matrix::kPackThreads));
  launch_kernel(matrix::pack_kernel<kKind, 32, T, matrix::ChannelOrder>,
                "inverted_residual excited's packing", grid, matrix::kPackThreads, 0, stream,
                static_cast<const T*>(weight), reinterpret_cast<uint32_t*>(packed), shape,
                matrix::ChannelOrder());
}

template <class T>
void pack(const BlockProblem& p, const Tiling& t, const BlockWeights& w, void* packed, Stream stream) {
  const Geometry g = geometry_of(p, t);
  auto* const to = static_cast<unsigned char*>(packed);
  pack_fragments<T>(g, w.project, to, stream);
  banded::pack_chunks<T>(p, t.filtering, w, to + g.chunks_at, stream);
  const auto copy = [&](const void* from, int64_t at, int64_t count) {
    launch_kernel(copy_kernel<T>, "inverted_residual excited's packing", Grid{}, kPackThreads, 0, stream,
                  static_cast<const T*>(from), reinterpret_cast<T*>(to + at), number(count),
                  number(round_up(count, kAligned / 2)));
  };
  const int64_t matrix = p.squeezed_channels * p.expanded_channels;
  copy(w.project_bias, g.project_bias_at, p.out_channels);
  copy(w.excitation.squeeze, g.squeeze_at, matrix);
  copy(w.excitation.squeeze_bias, g.squeeze_bias_at, p.squeezed_channels);
  copy(w.excitation.excite, g.excite_at, matrix);
  copy(w.excitation.excite_bias, g.excite_bias_at, p.expanded_channels);
}

}  // namespace convx::inverted_residual::excited
