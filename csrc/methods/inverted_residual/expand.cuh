// The first product: a chunk of the expanded tensor, of the pixels inside the image alone.
#pragma once
#include "methods/inverted_residual/activations.cuh"
#include "methods/inverted_residual/arguments.cuh"
#include "methods/inverted_residual/exact.cuh"
#include "methods/inverted_residual/fragments.cuh"

namespace convx::inverted_residual {

// A step of the depth: filters of a pair of tiles, and pixels.
template <int Tiles>
struct DepthStep {
  PairFilters filters;
  uint32_t pixels[Tiles][4];

  CONVX_DEVICE DepthStep(const unsigned char* lanes_filters, const unsigned char* const (&rows)[Tiles],
                         int step)
      : filters(lanes_filters + step * 512) {
    CONVX_UNROLL
    for (int i = 0; i < Tiles; ++i) load_rows(rows[i] + step * 32, pixels[i]);
  }
};

template <int Lanes, class T, class Form>
CONVX_DEVICE void expand(const Arguments<T>& a, const Window& window, const unsigned char* stage,
                         const unsigned char* shared, unsigned char* to, int warp, int lane) {
  constexpr int kTiles = Form::kShape.expand_tiles;
  const Place* const places = reinterpret_cast<const Place*>(shared + a.places_at) + lane / 4;
  const int tiles = (window.count + 15) / 16, warps = blockDim.x / Lanes;
  const int jobs = (tiles + kTiles - 1) / kTiles * static_cast<int>(a.by_pairs.divisor);
  const Bound<T> bound(a.activation);
  const unsigned char* const lanes_rows = shared + lane % 16 * a.source_pitch + lane / 16 * 16;
  CONVX_NO_UNROLL
  for (int job = warp; job < jobs; job += warps) {
    const int group = static_cast<int>(a.by_pairs.quotient(job)), first_tile = group * kTiles;
    const int pair = job - group * static_cast<int>(a.by_pairs.divisor);
    const unsigned char* rows[kTiles];
    int place[kTiles][2];  // -1 of what is none
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      const int tile = min(first_tile + i, tiles - 1);
      rows[i] = lanes_rows + tile * 16 * a.source_pitch;
      place[i][0] = first_tile + i < tiles ? places[tile * 16].window : -1;
      place[i][1] = first_tile + i < tiles ? places[tile * 16 + 8].window : -1;
    }
    const unsigned char* const filters = stage + pair * a.depth_steps * 512 + lane * 16;
    DepthStep<kTiles> current(filters, rows, 0);
    const PairSums bias(*reinterpret_cast<const Vector<float, 4>*>(stage + a.expand_bias_at +
                                                                   (pair * 16 + lane % 4 * 4) * 4));
    PairSums sums[kTiles];
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) sums[i] = bias;
    CONVX_UNROLL_TWICE
    for (int step = 0; step < a.depth_steps; ++step) {
      // The next one is on its way while products are made of this one.
      const DepthStep<kTiles> next(filters, rows, min(step + 1, a.depth_steps - 1));
      const Parts<T> of_pair(current.filters.word);
      CONVX_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        sums[i].template add<Lanes, T>(Parts<T>(current.pixels[i]), of_pair);
      }
      current = next;
    }
    const int value_bytes = sizeof(T);
    unsigned char* const lanes_place = to + (pair * 16 + lane % 4 * 4) * value_bytes;
    CONVX_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      if constexpr (sizeof(T) == 4) {
        if (!is_finite(sums[i])) {
          const unsigned char* const row = rows[i] + (lane / 4 - lane % 16) * a.source_pitch - lane / 16 * 16;
          sums[i] = bias;
          add_exactly(sums[i], row, a.source_pitch, filters - lane * 16, 512, a.depth_steps, lane);
        }
      }
      CONVX_UNROLL
      for (int half = 0; half < 2; ++half) {
        const PairSums& s = sums[i];
        const float values[4] = {s.at(half, 0), s.at(half, 1), s.at(half, 2), s.at(half, 3)};
        const auto words = activated_words<T, Form::kInside>(values, bound);
        if (place[i][half] >= 0) {
          *reinterpret_cast<Vector<uint32_t, sizeof(T)>*>(lanes_place + place[i][half]) = words;
        }
      }
    }
  }
}

}  // namespace convx::inverted_residual
