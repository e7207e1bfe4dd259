// From a plan to a launch of the tensor kernel, for one precision.
#pragma once
#include <stdexcept>

#include "methods/cuconv/launch.h"
#include "methods/cuconv/tensor/geometry.h"
#include "methods/cuconv/tensor/kernel.cuh"
#include "methods/cuconv/tensor/pack.cuh"

namespace convx::cuconv::tensor {

inline PlainOrder plain_order(const Sweep& s) {
  return {s.result_channels * s.source_channels * s.taps(), (s.flipped ? 1 : s.source_channels) * s.taps(),
          (s.flipped ? s.result_channels : 1) * s.taps(), static_cast<int>(s.taps()), s.flipped};
}

template <class T>
Arguments<T> arguments_of(const Geometry& g, const Sweep& s, const Way& way, const Operands& operands) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  Arguments<T> a{};
  a.source = static_cast<const T*>(operands.source);
  a.filters = static_cast<const unsigned char*>(operands.weight);
  a.plain_filters = static_cast<const T*>(operands.plain_weight);
  a.plain = plain_order(s);
  a.result = static_cast<T*>(operands.result);
  a.partial = static_cast<float*>(operands.partial);
  a.results = s.results();
  a.channels = number(s.source_channels), a.filter_count = number(s.result_channels);
  a.depth = number(g.depth), a.stage_taps = number(g.stage_taps), a.steps = number(g.steps);
  a.stages = number(g.stages), a.plane_stages = number(g.plane_stages), a.m_tiles = number(g.m_tiles);
  a.source_height = number(s.source_height), a.source_width = number(s.source_width);
  a.source_plane = number(s.source_plane());
  a.result_height = number(s.result_height), a.result_width = number(s.result_width);
  a.result_plane = number(s.result_plane());
  a.batch = number(s.batch);
  a.all_channels = number(s.all_source_channels()), a.all_filters = number(s.all_result_channels());
  a.filter_width = number(s.filter_width), a.taps = number(s.taps());
  a.stride_h = number(s.stride_h), a.stride_w = number(s.stride_w);
  a.step_h = number(s.dilation_h), a.step_w = number(s.dilation_w);
  a.top = number(s.top), a.left = number(s.left);
  a.residues_across = number(g.residues_across), a.class_places = number(g.class_places);
  a.places = number(g.places), a.items = number(g.items);
  a.table_words = number(g.table_bytes / 4);
  a.source_bytes = number(g.source_bytes), a.filter_bytes = number(g.filter_bytes);
  a.segment_taps = number(way.segment_taps), a.segments = number(g.segments);
  a.batches = number(g.batches), a.buffers = number(g.buffers);
  a.divide_row_tiles = divide_by(g.row_tiles), a.divide_column_tiles = divide_by(g.column_tiles);
  a.divide_planes = divide_by(g.planes);
  a.divide_image_places = divide_by(g.image_places), a.divide_pitch = divide_by(g.pitch);
  a.divide_result_plane = divide_by(s.result_plane());
  a.divide_row_pairs = divide_by(std::max<int64_t>(s.source_width / 2, 1));
  a.divide_source_height = divide_by(s.source_height);
  const int64_t element_bytes = operands.partial != nullptr ? 4 : static_cast<int64_t>(sizeof(T));
  const void* const target = operands.partial != nullptr ? operands.partial : operands.result;
  for (int64_t neighbours = 16 / element_bytes; neighbours >= 4; neighbours /= 2) {
    const bool fits = s.result_plane() % neighbours == 0 &&
                      is_aligned(target, static_cast<size_t>(neighbours * element_bytes));
    if (fits && a.neighbours == 0) a.neighbours = number(neighbours);
  }
  a.bias = operands.bias<T>();
  a.finishing = operands.finishing<T>();
  return a;
}

template <Precision Kind>
void launch_precision(const Plan& plan, const Sweep& s, const Operands& operands, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  const Way way = {plan["planes"], plan["depth"], plan["segment_taps"], plan["together"]};
  const bool found = with_tile<Kind>(static_cast<int>(plan["tile"]), [&](auto tile) {
    using Tile = decltype(tile);
    const Geometry g = geometry_of<Kind, Tile>(s, way);
    const auto kernel = way.together == 2 ? tensor_kernel<Kind, Tile, 2, T> : tensor_kernel<Kind, Tile, 1, T>;
    launch_in_turn(kernel, "cuconv tensor", Grid{static_cast<uint32_t>(g.blocks)}, Tile::kThreads,
                   static_cast<uint32_t>(g.shared_bytes), stream, arguments_of<T>(g, s, way, operands));
  });
  if (!found) throw std::logic_error("convx: no cuconv tensor tile for " + describe(plan));
}

template <Precision Kind>
void pack_precision(const Plan& plan, const Sweep& s, const void* weight, void* packed, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  PackShape shape = {};
  shape.pieces = static_cast<uint32_t>(plan.packed_weight_bytes / (kPieceBytes * matrix::parts(Kind)));
  shape.filters = static_cast<int>(s.result_channels), shape.channels = static_cast<int>(s.source_channels);
  shape.m_tiles = divide_by(divide_up(s.result_channels, kFilterTile));
  shape.taps = divide_by(s.taps());
  shape.steps = divide_by(divide_up(s.source_channels, step_channels(Kind)));
  shape.plain = plain_order(s);
  launch_kernel(pack_kernel<Kind, T>, "cuconv pack", Grid{(shape.pieces + kPackThreads - 1) / kPackThreads},
                kPackThreads, 0, stream, static_cast<const T*>(weight),
                static_cast<Vector<uint32_t, 4>*>(packed), shape);
}

// The build writes a source for each instance.
template void launch_precision<CONVX_INSTANCE>(const Plan&, const Sweep&, const Operands&, Stream);
template void pack_precision<CONVX_INSTANCE>(const Plan&, const Sweep&, const void*, void*, Stream);

}  // namespace convx::cuconv::tensor
