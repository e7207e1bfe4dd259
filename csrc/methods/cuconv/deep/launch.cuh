// The launcher of the deep family for one precision.
#pragma once
#include "methods/cuconv/deep/product.h"
#include "methods/cuconv/launch.h"
#include "methods/deep/launching.cuh"
#include "platform/gpu/launch.h"

namespace convx::cuconv::deep {

inline Window window_of(const Sweep& s, int64_t element_bytes) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  Window w{};
  w.height = number(s.source_height), w.width = number(s.source_width);
  w.top = number(s.top), w.left = number(s.left);
  w.stride_h = number(s.stride_h), w.stride_w = number(s.stride_w);
  w.step_h = number(s.dilation_h), w.step_w = number(s.dilation_w);
  w.taps = number(s.taps());
  w.pieces = divide_by(tap_channels(s, element_bytes) * element_bytes / kPieceBytes);
  w.filter_width = divide_by(s.filter_width), w.result_width = divide_by(s.result_width);
  return w;
}

template <matrix::Precision Kind>
void launch_precision(const Plan& plan, const Sweep& s, const Operands& operands, Stream stream) {
  using T = typename matrix::Types<Kind>::Element;
  const matrix::Product product = product_of(s, sizeof(T));
  const Tiling t{plan["lanes"], plan["fragments"], plan["ranks"], operands.planes};
  const Geometry g = geometry_of(product, t, sizeof(T));
  Shape shape = shape_of(product, t, g);
  shape.channels = static_cast<int>(s.source_channels);
  shape.plane = divide_by(s.result_plane());
  shape.window = window_of(s, sizeof(T));
  with_kernel<Kind, true>(t, [&](auto kernel, uint32_t threads) {
    launch_in_turn(kernel, "cuconv deep", grid_of(t, g), threads, static_cast<uint32_t>(g.shared_bytes),
                   stream, static_cast<const uint32_t*>(operands.weight),
                   static_cast<const T*>(operands.source), operands.bias<T>(),
                   static_cast<T*>(operands.result), shape, operands.finishing<T>());
  });
}

template <matrix::Precision Kind>
void pack_precision(const Plan& plan, const Sweep& s, const void* weight, void* packed, Stream stream) {
  constexpr int64_t kBytes = matrix::element_bytes(Kind);
  const matrix::Product product = product_of(s, kBytes);
  const int64_t lanes = plan["lanes"];
  const Geometry g = geometry_of(product, {lanes, 1, 1, false}, kBytes);
  matrix::PackShape shape = pack_shape_of(product, g, plan.packed_weight_bytes);
  shape.depth = static_cast<int>(s.source_channels);
  shape.filter_row = (s.flipped ? 1 : s.source_channels) * s.taps();
  shape.filter_depth = (s.flipped ? s.result_channels : 1) * s.taps();
  shape.taps = static_cast<int>(s.taps()), shape.flipped = s.flipped;
  shape.of_tap = divide_by(tap_channels(s, kBytes));
  launch_pack<Kind>("cuconv pack", shape, lanes, weight, packed, stream);
}

// The build writes a source for each instance.
template void launch_precision<CONVX_INSTANCE>(const Plan&, const Sweep&, const Operands&, Stream);
template void pack_precision<CONVX_INSTANCE>(const Plan&, const Sweep&, const void*, void*, Stream);

}  // namespace convx::cuconv::deep
