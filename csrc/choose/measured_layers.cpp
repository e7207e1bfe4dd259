#include "choose/measured_layers.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace convx {

// In octaves, or several for what decides on the kernel: filters, strides, and planes that don't begin at
// multiples of 16 bytes.
MeasuredLayers::Place MeasuredLayers::place_of(int64_t batch, int64_t in_channels, int64_t out_channels,
                                               int64_t in_plane, int64_t out_plane, int64_t taps,
                                               int64_t stride) {
  const auto octaves = [](int64_t value) { return std::log2(static_cast<double>(value)); };
  return {{octaves(batch), octaves(in_channels), octaves(out_channels), octaves(out_plane), 2 * octaves(taps),
           4 * octaves(stride)},
          in_plane,
          out_plane};
}

MeasuredLayers::Place MeasuredLayers::place_of(const MeasuredLayer& layer) {
  const int64_t padded = layer.size + 2 * (layer.filter / 2);
  const int64_t out = (padded - layer.filter) / layer.stride + 1;
  return place_of(layer.batch, layer.in_channels, layer.out_channels, int64_t{layer.size} * layer.size,
                  out * out, int64_t{layer.filter} * layer.filter, layer.stride);
}

MeasuredLayers::Place MeasuredLayers::place_of(const ConvProblem& p) {
  return place_of(p.batch, p.in_channels, p.out_channels, p.in_height * p.in_width,
                  p.out_height * p.out_width, p.filter_height * p.filter_width, p.stride_h);
}

double MeasuredLayers::distance(const Place& a, const Place& b, int64_t element_bytes) {
  const auto aligned = [&](const Place& place) {
    return (place.in_plane * element_bytes) % 16 == 0 && (place.out_plane * element_bytes) % 16 == 0;
  };
  double squares = aligned(a) == aligned(b) ? 0 : 4;
  for (size_t axis = 0; axis < a.axes.size(); ++axis) {
    squares += (a.axes[axis] - b.axes[axis]) * (a.axes[axis] - b.axes[axis]);
  }
  return std::sqrt(squares);
}

const MeasuredLayers::View& MeasuredLayers::view_from(const Place& place, int64_t element_bytes) const {
  thread_local View view;
  if (view.of == this && view.place == place && view.element_bytes == element_bytes) return view;
  view.of = this, view.place = place, view.element_bytes = element_bytes;
  view.away.resize(places_.size()), view.say.resize(places_.size());
  for (size_t layer = 0; layer < places_.size(); ++layer) {
    view.away[layer] = distance(place, places_[layer], element_bytes);
    view.say[layer] = std::exp(-view.away[layer] / reach_);
  }
  return view;
}

MeasuredLayers::Surroundings MeasuredLayers::around(const ConvProblem& problem, int first, int count) const {
  const View& view = view_from(place_of(problem), element_size(problem.dtype));
  double nearest = std::numeric_limits<double>::infinity(), sum = 0;
  for (const MeasuredPoint* point = points_ + first; point != points_ + first + count; ++point) {
    const auto layer = static_cast<size_t>(point->layer);
    nearest = std::min(nearest, view.away[layer]);
    sum += static_cast<double>(point->weight) * view.say[layer];
  }
  return {nearest, std::exp(sum)};
}

}  // namespace convx
