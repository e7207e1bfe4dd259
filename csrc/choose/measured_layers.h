// The measured layers around a problem, which correct what a model says about its time.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "problem/problem.h"

namespace convx {

// Square maps and filters, 'same' padding.
struct MeasuredLayer {
  int batch, in_channels, size, out_channels, filter, stride;
};

struct MeasuredPoint {
  int layer;
  float weight;  // of the layer in the correction
};

// All layers of one file that benchmarks/fit.py wrote; benchmarks/measured_layers.py computes the same.
class MeasuredLayers {
 public:
  // At the distance reach a layer's say in the correction has fallen to 1 / e.
  template <size_t Count>
  MeasuredLayers(double reach, const MeasuredLayer (&layers)[Count], const MeasuredPoint* points)
      : reach_(reach), points_(points) {
    for (const MeasuredLayer& layer : layers) places_.push_back(place_of(layer));
  }

  struct Surroundings {
    double nearest;     // distance
    double correction;  // a factor, 1 far from all layers
  };

  // By count points, from the first of a series on.
  Surroundings around(const ConvProblem& problem, int first, int count) const;

 private:
  struct Place {
    std::array<double, 6> axes;
    int64_t in_plane, out_plane;  // elements
    bool operator==(const Place& other) const {
      return axes == other.axes && in_plane == other.in_plane && out_plane == other.out_plane;
    }
  };
  // All layers as they lie around one place, which is asked about for every plan of its problem.
  struct View {
    const MeasuredLayers* of = nullptr;
    Place place{};
    int64_t element_bytes = 0;
    std::vector<double> away, say;  // of each layer: its distance, and what its weight counts
  };

  static Place place_of(int64_t batch, int64_t in_channels, int64_t out_channels, int64_t in_plane,
                        int64_t out_plane, int64_t taps, int64_t stride);
  static Place place_of(const MeasuredLayer& layer);
  static Place place_of(const ConvProblem& problem);
  static double distance(const Place& a, const Place& b, int64_t element_bytes);
  const View& view_from(const Place& place, int64_t element_bytes) const;  // of this thread, until the next

  double reach_;
  std::vector<Place> places_;
  const MeasuredPoint* points_;
};

}  // namespace convx
