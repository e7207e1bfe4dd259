// From a plan to launches, for one element type.
#pragma once
#include "methods/inverted_residual/excited/excited.h"
#include "platform/gpu/launch.h"

#if !defined(CONVX_HIP)  // no AMD GPU is ever given such a plan: launch.cu
#include "methods/gates/launching.cuh"
#include "methods/gates/plane_sums.cuh"
#include "methods/inverted_residual/excited/pack.cuh"
#include "methods/shallow/launching.cuh"

namespace convx::inverted_residual::excited {

constexpr int kLanes = 32;

// Where the kernels leave what those after them read.
template <class T>
struct Between {
  T* filtered;
  float* plane_sums;
  T* gates;

  Between(const Geometry& g, void* workspace) {
    auto* const first = static_cast<unsigned char*>(workspace);
    filtered = reinterpret_cast<T*>(first);
    plane_sums = reinterpret_cast<float*>(first + g.plane_sums_at);
    gates = reinterpret_cast<T*>(first + g.gates_at);
  }
};

template <class T>
void filter(const BlockProblem& p, const Tiling& t, const Geometry& g, const Between<T>& between,
            Pointers pointers, Stream stream) {
  pointers.result = between.filtered;
  pointers.packed_weight = static_cast<const unsigned char*>(pointers.packed_weight) + g.chunks_at;
  auto a = banded::arguments_of<T>(p, t.filtering, g.filtering, pointers);
  a.plane_sums = between.plane_sums;
  with_sizes(p, [&](auto filter, auto stride) {
    constexpr int kFilter = decltype(filter)::value, kStride = decltype(stride)::value;
    const auto start = [&](auto inside) {
      banded::start<banded::End::filtered, T, kFilter, kStride, decltype(inside)::value, false, 0>(
          t.filtering, g.filtering, a, stream);
    };
    if (p.activation == Activation::silu) {
      start(std::integral_constant<Inside, Inside::silu>());
    } else if (p.activation == Activation::hardswish) {
      start(std::integral_constant<Inside, Inside::hardswish>());
    } else {
      start(std::integral_constant<Inside, Inside::relu>());
    }
  });
}

template <class T>
void make_gates(const BlockProblem& p, const Geometry& g, const Between<T>& between,
                const unsigned char* packed, Stream stream) {
  const ExciteWeights weights = {packed + g.squeeze_at, packed + g.squeeze_bias_at, packed + g.excite_at,
                                 packed + g.excite_bias_at};
  Pointers pointers;
  pointers.weight = &weights, pointers.result = between.gates;
  auto a = gates::arguments_of<T>(p.excitation(), g.gate_tiling, g.gating, pointers);
  a.plane_sums = between.plane_sums, a.tiles = number(g.tiles);
  launch_in_turn(gates::squeeze_excite_kernel<T, kLanes, gates::PlaneSums<T> >, "inverted_residual's gates",
                 Grid{static_cast<uint32_t>(p.batch)}, gates::kThreads,
                 static_cast<uint32_t>(g.gating.shared_bytes), stream, a);
}

template <class T>
void project(const BlockProblem& p, const Tiling& t, const Geometry& g, const Between<T>& between,
             const Pointers& pointers, Stream stream) {
  const auto* const packed = static_cast<const unsigned char*>(pointers.packed_weight);
  const auto shape = shallow::shape_of(g.product, t.product, g.projecting, p.output_activation);
  const shallow::Excited<T> extra = {between.gates,
                                     p.has_residual ? static_cast<const T*>(pointers.input) : nullptr,
                                     divide_by(p.out_pixels())};
  shallow::with_step_pairs<1>(g.projecting.step_pairs, [&](auto pairs) {
    launch_in_turn(shallow::shallow_kernel<kLanes, decltype(pairs)::value, T, shallow::Excited<T> >,
                   "inverted_residual's excited product", Grid{static_cast<uint32_t>(g.projecting.blocks)},
                   static_cast<uint32_t>(shallow::kWarps * kLanes),
                   static_cast<uint32_t>(g.projecting.shared_bytes), stream,
                   reinterpret_cast<const uint32_t*>(packed), static_cast<const T*>(between.filtered),
                   reinterpret_cast<const T*>(packed + g.project_bias_at), static_cast<T*>(pointers.result),
                   shape, extra);
  });
}

template <class T>
void launch_typed(const Plan& plan, const BlockProblem& p, const Pointers& pointers, Stream stream) {
  const Tiling t = tiling_of(plan);
  const Geometry g = geometry_of(p, t);
  const Between<T> between(g, pointers.workspace);
  // Where the first has waited for what was packed, so have those that wait for it.
  filter(p, t, g, between, pointers, pointers.packed_just_now ? stream.without_overlap() : stream);
  make_gates(p, g, between, static_cast<const unsigned char*>(pointers.packed_weight), stream);
  project(p, t, g, between, pointers, stream);
}

template <class T>
void pack_typed(const Plan& plan, const BlockProblem& p, const BlockWeights& w, void* packed, Stream stream) {
  pack<T>(p, tiling_of(plan), w, packed, stream);
}

// The build writes a source for each instance.
template void launch_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const Pointers&, Stream);
template void pack_typed<CONVX_INSTANCE>(const Plan&, const BlockProblem&, const BlockWeights&, void*,
                                         Stream);

}  // namespace convx::inverted_residual::excited
#endif
