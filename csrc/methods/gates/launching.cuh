// What launchers tell the kernel.
#pragma once
#include "methods/gates/kernel.cuh"
#include "plan/launch.h"

namespace convx::gates {

// pointers: input, weight (ExciteWeights), result.
template <class T>
Arguments<T> arguments_of(const ExciteProblem& p, const Tiling& t, const Geometry& g,
                          const Pointers& pointers) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  const auto& weights = *static_cast<const ExciteWeights*>(pointers.weight);
  Arguments<T> a{};
  a.input = static_cast<const T*>(pointers.input);
  a.squeeze = static_cast<const T*>(weights.squeeze);
  a.squeeze_bias = static_cast<const T*>(weights.squeeze_bias);
  a.excite = static_cast<const T*>(weights.excite);
  a.excite_bias = static_cast<const T*>(weights.excite_bias);
  a.result = static_cast<T*>(pointers.result);
  a.channels = number(p.channels), a.squeezed = number(p.squeezed_channels), a.pixels = number(p.pixels());
  a.ranks = number(t.ranks), a.shares_pixels = t.shares_pixels;
  a.stages_image = t.stages_image, a.stages_matrices = t.stages_matrices;
  a.activation = p.activation, a.gate = p.gate;
  a.per_pixel = 1.0f / static_cast<float>(p.pixels());
  a.own_channels = number(g.own_channels), a.own_pixels = number(g.own_pixels);
  a.groups = number(g.groups), a.parts = number(g.parts);
  a.gates_at = number(g.gates_at), a.squeezed_at = number(g.squeezed_at);
  a.exchange_at = number(g.exchange_at), a.partial_at = number(g.partial_at);
  a.squeeze_at = number(g.squeeze_at), a.excite_at = number(g.excite_at), a.image_at = number(g.image_at);
  a.by_ranks = divide_by(a.ranks), a.by_pixels = divide_by(a.pixels);
  a.by_vectors = divide_by(g.own_vectors), a.by_fours = divide_by(a.own_channels / 4);
  return a;
}

}  // namespace convx::gates
